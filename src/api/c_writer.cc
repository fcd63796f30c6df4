#include "api/c_handles.h"

using dlfs::Code;
using dlfs::Result;
using dlfs::api::guarded;

namespace dlfs::api {

namespace {

Result<std::string_view> text_of(const char* what, const dlfs_bytes& bytes) {
  if (bytes.data == nullptr && bytes.size > 0) {
    return base::make_error(Code::kInvalidArgument, "{} has {} bytes but its data is NULL", what, bytes.size);
  }
  return std::string_view(static_cast<const char*>(bytes.data), bytes.size);
}

Result<WriterOptions> writer_options(const dlfs_writer_options* from, Schema& schema) {
  WriterOptions options;
  if (from == nullptr) return options;
  DLFS_TRY(check_reserved("dlfs_writer_options", from->reserved));
  options.seed = from->seed;
  options.overwrite = from->overwrite;
  options.shuffle = !from->no_shuffle;
  options.names = !from->no_names;
  if (from->pool_bytes != 0) options.pool_bytes = from->pool_bytes;
  if (from->chunk_bytes != 0) options.chunk_bytes = from->chunk_bytes;
  if (from->attribute_count > 0 && from->attributes == nullptr) {
    return base::make_error(Code::kInvalidArgument, "dlfs_writer_options has {} attributes but `attributes` is NULL",
                            from->attribute_count);
  }
  for (std::size_t i = 0; i < from->attribute_count; ++i) {
    const dlfs_attribute& attribute = from->attributes[i];
    if (attribute.key == nullptr) return base::make_error(Code::kInvalidArgument, "the key of attribute {} is NULL", i);
    DLFS_TRY_ASSIGN(const std::string_view value, text_of("an attribute", attribute.value));
    schema.attributes.emplace_back(attribute.key, value);
  }
  return options;
}

Result<std::vector<Bytes>> values_of(const dlfs_bytes* fields, std::size_t count) {
  if (fields == nullptr && count > 0)
    return base::make_error(Code::kInvalidArgument, "{} fields were given but `fields` is NULL", count);
  std::vector<Bytes> values;
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (fields[i].data == nullptr && fields[i].size > 0) {
      return base::make_error(Code::kInvalidArgument, "field {} has {} bytes but its data is NULL", i, fields[i].size);
    }
    values.emplace_back(static_cast<const std::byte*>(fields[i].data), fields[i].size);
  }
  return values;
}

Result<Writer*> open_writer(const char* function, dlfs_writer* writer) {
  if (writer == nullptr) return null_argument(function, "writer");
  if (!writer->writer) {
    return base::make_error(Code::kInvalidArgument,
                            "{}: the writer has been committed: nothing but dlfs_writer_close may follow", function);
  }
  return &*writer->writer;
}

std::string_view name_of(const char* name) { return name == nullptr ? std::string_view() : std::string_view(name); }

}  // namespace

}  // namespace dlfs::api

dlfs_writer* dlfs_writer_create(const char* url, const char* schema, const dlfs_writer_options* options,
                                dlfs_error* error) {
  return guarded<dlfs_writer*>(error, nullptr, [&, public_name = __func__]() -> Result<dlfs_writer*> {
    DLFS_REQUIRE(url);
    DLFS_REQUIRE(schema);
    DLFS_TRY_ASSIGN(dlfs::Schema parsed, dlfs::Schema::parse(schema));
    DLFS_TRY_ASSIGN(const dlfs::WriterOptions native, dlfs::api::writer_options(options, parsed));
    DLFS_TRY_ASSIGN(dlfs::Writer writer, dlfs::Writer::create(url, parsed, native));
    return new dlfs_writer{std::move(writer), 0, {}};
  });
}

int dlfs_writer_append(dlfs_writer* writer, const char* name, const dlfs_bytes* fields, std::size_t field_count,
                       dlfs_error* error) {
  return guarded(error, [&, public_name = __func__]() -> Result<void> {
    DLFS_TRY_ASSIGN(dlfs::Writer * open, dlfs::api::open_writer(public_name, writer));
    DLFS_TRY_ASSIGN(const auto values, dlfs::api::values_of(fields, field_count));
    return open->append(dlfs::api::name_of(name), values);
  });
}

int dlfs_writer_append_at(dlfs_writer* writer, std::uint32_t id, const char* name, const dlfs_bytes* fields,
                          std::size_t field_count, dlfs_error* error) {
  return guarded(error, [&, public_name = __func__]() -> Result<void> {
    DLFS_TRY_ASSIGN(dlfs::Writer * open, dlfs::api::open_writer(public_name, writer));
    DLFS_TRY_ASSIGN(const auto values, dlfs::api::values_of(fields, field_count));
    return open->append_at(id, dlfs::api::name_of(name), values);
  });
}

int dlfs_writer_append_stream_at(dlfs_writer* writer, std::uint32_t id, const char* name,
                                 const dlfs_bytes* other_fields, std::size_t other_count, std::uint64_t length,
                                 bool (*source)(void* context, void* into, std::size_t size), void* context,
                                 dlfs_error* error) {
  return guarded(error, [&, public_name = __func__]() -> Result<void> {
    DLFS_TRY_ASSIGN(dlfs::Writer * open, dlfs::api::open_writer(public_name, writer));
    DLFS_REQUIRE(source);
    DLFS_TRY_ASSIGN(const auto values, dlfs::api::values_of(other_fields, other_count));
    return open->append_stream_at(
        id, dlfs::api::name_of(name), values, length, [&](std::span<std::byte> into) -> Result<void> {
          if (source(context, into.data(), into.size())) return {};
          return dlfs::base::make_error(Code::kSourceChanged,
                                        "the source of sample {} ('{}') failed before its {} bytes were read", id,
                                        dlfs::base::escape(dlfs::api::name_of(name)), length);
        });
  });
}

std::uint64_t dlfs_writer_count(const dlfs_writer* writer) {
  if (writer == nullptr) return 0;
  return writer->writer ? writer->writer->count() : writer->committed;
}

int dlfs_writer_commit(dlfs_writer* writer, dlfs_volume_info* info, dlfs_error* error) {
  return guarded(error, [&, public_name = __func__]() -> Result<void> {
    DLFS_TRY_ASSIGN(dlfs::Writer * open, dlfs::api::open_writer(public_name, writer));
    const std::uint64_t count = open->count();
    DLFS_TRY_ASSIGN(writer->info, open->commit());
    writer->writer.reset();
    writer->committed = count;
    if (info != nullptr) dlfs::api::export_info(writer->info, *info);
    return {};
  });
}

void dlfs_writer_close(dlfs_writer* writer) { delete writer; }
