// The schema's codec and its textual form.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <set>

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/error.h"
#include "base/try.h"
#include "layout/format.h"

namespace dlfs::layout {
namespace {

using base::load_le;
using base::make_error;

constexpr char kMagic[8] = {'D', 'L', 'F', 'S', 'S', 'C', 'H', 'M'};
constexpr std::size_t kHeaderBytes = 24;
constexpr std::size_t kMaxDimensions = 32, kMaxFieldName = 255, kMaxAttributes = 65536;

struct DTypeFacts {
  const char* name;
  std::uint32_t bytes;
};
constexpr DTypeFacts kDTypes[] = {{"bool", 1},    {"int8", 1},      {"uint8", 1},      {"int16", 2},
                                  {"uint16", 2},  {"int32", 4},     {"uint32", 4},     {"int64", 8},
                                  {"uint64", 8},  {"float16", 2},   {"bfloat16", 2},   {"float32", 4},
                                  {"float64", 8}, {"complex64", 8}, {"complex128", 16}};

bool known(DType dtype) { return static_cast<std::size_t>(dtype) < std::size(kDTypes); }

// Bytes of one value; the maximum of the type when the product does not fit.
std::uint64_t tensor_bytes(DType dtype, std::span<const std::uint64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  std::uint64_t bytes = item_bytes(dtype);
  for (const std::uint64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::numeric_limits<std::uint64_t>::max();
  }
  return bytes;
}

// UTF-8 without control characters: what escape() would leave alone, but for the backslash.
bool printable_utf8(std::string_view text) {
  std::string without_backslash;
  std::copy_if(text.begin(), text.end(), std::back_inserter(without_backslash), [](char c) { return c != '\\'; });
  return base::escape(without_backslash) == without_backslash;
}

bool plain_name(std::string_view name) {
  return name.find_first_of(",:[]\"\\") == std::string_view::npos && name.front() != ' ' && name.back() != ' ';
}

std::string quoted(std::string_view name) {
  if (!name.empty() && plain_name(name)) return std::string(name);
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

Result<void> validate_field(const Field& field) {
  const std::string shown = base::escape(field.name);
  if (field.name.empty() || field.name.size() > kMaxFieldName || !printable_utf8(field.name)) {
    return make_error(Code::kInvalidArgument,
                      "field name '{}' is not 1 to {} bytes of UTF-8 without control characters", shown, kMaxFieldName);
  }
  if (field.kind > Kind::kTensor) return make_error(Code::kInvalidArgument, "field '{}' has an unknown kind", shown);
  if (!field.fixed()) {
    if (!field.shape.empty())
      return make_error(Code::kInvalidArgument, "field '{}' is not a tensor and cannot have a shape", shown);
    return {};
  }
  if (!known(field.dtype)) return make_error(Code::kInvalidArgument, "field '{}' has an unknown dtype", shown);
  if (field.shape.size() > kMaxDimensions)
    return make_error(Code::kInvalidArgument, "field '{}' has {} dimensions; {} are allowed", shown, field.shape.size(),
                      kMaxDimensions);
  if (tensor_bytes(field.dtype, field.shape) > kMaxSampleBytes)
    return make_error(Code::kInvalidArgument, "one value of field '{}' is larger than {} bytes", shown,
                      kMaxSampleBytes);
  return {};
}

Result<void> validate_attributes(const Schema& schema) {
  if (schema.attributes.size() > kMaxAttributes)
    return make_error(Code::kInvalidArgument, "the schema has {} attributes; {} are allowed", schema.attributes.size(),
                      kMaxAttributes);
  std::set<std::string_view> keys;
  std::uint64_t total = 0;
  for (const auto& [key, value] : schema.attributes) {
    if (key.empty() || key.size() > kMaxFieldName || !printable_utf8(key)) {
      return make_error(Code::kInvalidArgument,
                        "attribute '{}' is not 1 to {} bytes of UTF-8 without control characters", base::escape(key),
                        kMaxFieldName);
    }
    if (!keys.insert(key).second)
      return make_error(Code::kInvalidArgument, "attribute '{}' occurs twice", base::escape(key));
    total += 8 + key.size() + value.size();
  }
  if (total > kMaxSchemaBytes / 2)
    return make_error(Code::kInvalidArgument, "the schema's attributes take {} bytes; at most {} are allowed", total,
                      kMaxSchemaBytes / 2);
  return {};
}

// ---- decoding ----

Error damaged(std::string_view what) { return make_error(Code::kCorrupt, "the schema is damaged: {}", what); }

// Reads the front of `bytes` piece by piece; `ok` turns false at the first piece that is not there.
struct Cursor {
  std::span<const std::byte> bytes;
  bool ok = true;

  std::span<const std::byte> take(std::uint64_t count) {
    if (!ok || count > bytes.size()) return ok = false, std::span<const std::byte>{};
    const auto front = bytes.first(count);
    bytes = bytes.subspan(count);
    return front;
  }
  template <class T>
  T number() {
    const auto front = take(sizeof(T));
    return ok ? load_le<T>(front.data()) : T{};
  }
  std::string text(std::uint64_t count) {
    const auto front = take(count);
    return {reinterpret_cast<const char*>(front.data()), front.size()};
  }
};

Field decode_field(Cursor& in) {
  Field field;
  field.kind = static_cast<Kind>(in.number<std::uint8_t>());
  const auto dtype = in.number<std::uint8_t>();
  const auto dimensions = in.number<std::uint8_t>();
  const auto name_bytes = in.number<std::uint8_t>();
  field.name = in.text(name_bytes);
  for (unsigned i = 0; i < dimensions && in.ok; ++i) field.shape.push_back(in.number<std::uint64_t>());
  if (field.fixed()) {
    field.dtype = static_cast<DType>(dtype);
  } else if (dtype != 0) {
    in.ok = false;
  }
  return field;
}

// ---- the text ----

struct Parser {
  std::string_view text;
  std::size_t at = 0;

  void skip_spaces() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n')) ++at;
  }
  bool take(char c) {
    skip_spaces();
    if (at >= text.size() || text[at] != c) return false;
    return ++at, true;
  }
  Error expected(std::string_view what) const {
    return make_error(Code::kInvalidArgument, "schema '{}': expected {} at character {}", base::escape(text), what,
                      at + 1);
  }
  std::string_view word() {
    skip_spaces();
    const std::size_t end = std::min(text.find_first_of(",:[]\"", at), text.size());
    std::string_view found = text.substr(at, end - at);
    at = end;
    while (!found.empty() && (found.back() == ' ' || found.back() == '\t' || found.back() == '\n'))
      found.remove_suffix(1);
    return found;
  }
  Result<std::string> name() {
    if (!take('"')) {
      const std::string_view plain = word();
      if (plain.empty()) return expected("a field name");
      return std::string(plain);
    }
    std::string out;
    for (; at < text.size() && text[at] != '"'; ++at) {
      if (text[at] == '\\' && at + 1 < text.size()) ++at;
      out += text[at];
    }
    if (!take('"')) return expected("a closing quote");
    return out;
  }
  Result<std::vector<std::uint64_t>> shape() {
    std::vector<std::uint64_t> out;
    if (!take('[')) return out;
    if (take(']')) return out;
    do {
      skip_spaces();
      std::uint64_t dimension = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), dimension);
      if (error != std::errc{}) return expected("a dimension (a number)");
      at = static_cast<std::size_t>(end - text.data());
      out.push_back(dimension);
    } while (take(','));
    if (!take(']')) return expected("',' or ']'");
    return out;
  }
};

Result<Field> parse_field(Parser& in) {
  Field field;
  DLFS_TRY_ASSIGN(field.name, in.name());
  if (!in.take(':')) return in.expected(fmt::format("':' and a type after field '{}'", base::escape(field.name)));
  const std::size_t type_at = in.at;
  const std::string_view type = in.word();
  if (type == "bytes" || type == "text") {
    field.kind = type == "bytes" ? Kind::kBytes : Kind::kText;
    return field;
  }
  field.kind = Kind::kTensor;
  auto dtype = dtype_of_name(type);
  if (!dtype) {
    in.at = type_at;
    return in.expected(fmt::format("bytes, text or a dtype such as int64 instead of '{}'", base::escape(type)));
  }
  field.dtype = *dtype;
  DLFS_TRY_ASSIGN(field.shape, in.shape());
  return field;
}

}  // namespace

std::uint32_t item_bytes(DType dtype) noexcept {
  return known(dtype) ? kDTypes[static_cast<std::size_t>(dtype)].bytes : 0;
}

const char* dtype_name(DType dtype) noexcept {
  return known(dtype) ? kDTypes[static_cast<std::size_t>(dtype)].name : "unknown";
}

Result<DType> dtype_of_name(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kDTypes); ++i) {
    if (name == kDTypes[i].name) return static_cast<DType>(i);
  }
  return make_error(Code::kInvalidArgument, "'{}' is not a dtype; int64, uint8, float32, bfloat16 and bool are some",
                    base::escape(name));
}

std::uint64_t Field::fixed_bytes() const noexcept { return tensor_bytes(dtype, shape); }

int Schema::find(std::string_view name) const noexcept {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::string Schema::to_string() const {
  std::string out;
  for (const Field& field : fields) {
    if (!out.empty()) out += ", ";
    out += quoted(field.name) + ": ";
    if (!field.fixed()) {
      out += field.kind == Kind::kText ? "text" : "bytes";
      continue;
    }
    out += dtype_name(field.dtype);
    if (!field.shape.empty()) out += fmt::format("[{}]", fmt::join(field.shape, ","));
  }
  return out;
}

Result<void> validate(const Schema& schema) {
  if (schema.fields.empty() || schema.fields.size() > kMaxFields) {
    return make_error(Code::kInvalidArgument, "the schema has {} fields; 1 to {} are allowed", schema.fields.size(),
                      kMaxFields);
  }
  std::set<std::string_view> names;
  std::uint64_t fixed_total = 0;
  for (const Field& field : schema.fields) {
    DLFS_TRY(validate_field(field));
    if (!names.insert(field.name).second)
      return make_error(Code::kInvalidArgument, "field '{}' occurs twice", base::escape(field.name));
    if (field.fixed()) fixed_total += field.fixed_bytes();
  }
  if (fixed_total > kMaxSampleBytes)
    return make_error(Code::kInvalidArgument, "the fixed fields together are larger than {} bytes", kMaxSampleBytes);
  return validate_attributes(schema);
}

std::vector<std::byte> encode(const Schema& schema) {
  std::vector<std::byte> out(kHeaderBytes);
  const auto append = [&](const void* from, std::size_t count) {
    const auto* bytes = static_cast<const std::byte*>(from);
    out.insert(out.end(), bytes, bytes + count);
  };
  const auto append_number = [&]<class T>(T value) {
    out.resize(out.size() + sizeof value);
    base::store_le<T>(out.data() + out.size() - sizeof value, value);
  };
  for (const Field& field : schema.fields) {
    append_number(static_cast<std::uint8_t>(field.kind));
    append_number(field.fixed() ? static_cast<std::uint8_t>(field.dtype) : std::uint8_t{0});
    append_number(static_cast<std::uint8_t>(field.shape.size()));
    append_number(static_cast<std::uint8_t>(field.name.size()));
    append(field.name.data(), field.name.size());
    for (const std::uint64_t dimension : field.shape) append_number(dimension);
  }
  for (const auto& [key, value] : schema.attributes) {
    append_number(static_cast<std::uint32_t>(key.size()));
    append_number(static_cast<std::uint32_t>(value.size()));
    append(key.data(), key.size());
    append(value.data(), value.size());
  }
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  base::store_le<std::uint32_t>(out.data() + 8, kFormatVersion);
  base::store_le<std::uint32_t>(out.data() + 12, static_cast<std::uint32_t>(out.size() + 4));
  base::store_le<std::uint32_t>(out.data() + 16, static_cast<std::uint32_t>(schema.fields.size()));
  base::store_le<std::uint32_t>(out.data() + 20, static_cast<std::uint32_t>(schema.attributes.size()));
  append_number(base::crc32c(out));
  return out;
}

Result<Schema> decode_schema(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes + 4 || bytes.size() > kMaxSchemaBytes)
    return damaged(fmt::format("it is {} bytes long", bytes.size()));
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) return damaged("its magic is wrong");
  if (base::crc32c(bytes.first(bytes.size() - 4)) != load_le<std::uint32_t>(bytes.data() + bytes.size() - 4))
    return damaged("its CRC does not match");
  const auto version = load_le<std::uint32_t>(bytes.data() + 8);
  if (version != kFormatVersion) {
    return make_error(Code::kUnsupportedVersion, "the schema has format version {}; this program reads version {}",
                      version, kFormatVersion);
  }
  if (load_le<std::uint32_t>(bytes.data() + 12) != bytes.size()) return damaged("its length does not match");
  const auto fields = load_le<std::uint32_t>(bytes.data() + 16);
  const auto attributes = load_le<std::uint32_t>(bytes.data() + 20);
  if (fields > kMaxFields || attributes > kMaxAttributes) return damaged("it has too many fields or attributes");
  Schema schema;
  Cursor in{bytes.subspan(kHeaderBytes, bytes.size() - kHeaderBytes - 4)};
  for (std::uint32_t i = 0; i < fields && in.ok; ++i) schema.fields.push_back(decode_field(in));
  for (std::uint32_t i = 0; i < attributes && in.ok; ++i) {
    const auto key_bytes = in.number<std::uint32_t>();
    const auto value_bytes = in.number<std::uint32_t>();
    std::string key = in.text(key_bytes);
    schema.attributes.emplace_back(std::move(key), in.text(value_bytes));
  }
  if (!in.ok || !in.bytes.empty()) return damaged("its parts do not add up to its length");
  if (auto valid = validate(schema); !valid) return damaged(valid.error().message);
  return schema;
}

Result<Schema> parse_schema(std::string_view text) {
  Schema schema;
  Parser in{text};
  do {
    DLFS_TRY_ASSIGN(Field field, parse_field(in));
    schema.fields.push_back(std::move(field));
    if (schema.fields.size() > kMaxFields) break;
  } while (in.take(','));
  in.skip_spaces();
  if (in.at != text.size() && schema.fields.size() <= kMaxFields) return in.expected("',' or the end");
  DLFS_TRY(validate(schema));
  return schema;
}

}  // namespace dlfs::layout
