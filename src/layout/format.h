// The on-media format, version 1: constants and structures. docs/format.md specifies every byte; this module is its
// only codec. Pure: bytes in, values out. Every decode checks magic, version, length, CRC32C and range before it
// returns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"
#include "dlfs/result.h"

namespace dlfs::layout {

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::size_t kSuperblockBytes = 4096;
inline constexpr std::uint64_t kSuperblockOffsets[2] = {0, 65536};
inline constexpr std::uint32_t kSectorBytes = 4096;  // sections of the volume start at multiples of it
inline constexpr std::uint32_t kMinChunkBytes = 64u << 10;
inline constexpr std::uint32_t kMaxChunkBytes = 16u << 20;
inline constexpr std::uint32_t kDefaultChunkBytes = 256u << 10;
inline constexpr std::uint64_t kMaxSampleBytes = 64ull << 30;  // of one record's fields together
inline constexpr std::uint32_t kMaxNameBytes = 4095;
inline constexpr std::uint32_t kRecordAlign = 8;
inline constexpr std::uint32_t kNameBlockBytes = 16384;
inline constexpr std::uint64_t kMaxSamples = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kMaxDeviceBytes = 64ull << 40;
inline constexpr std::uint64_t kDataStartBytes =
    128u << 10;  // the data area starts at the first chunk's edge at or behind it
inline constexpr std::uint32_t kMaxFields = 1024;
inline constexpr std::uint32_t kMaxSchemaBytes = 16u << 20;

// ---- schema ----
enum class Kind : std::uint8_t { kBytes = 0, kText = 1, kTensor = 2 };  // kText is UTF-8
// NumPy's kinds; the value is part of the format.
enum class DType : std::uint8_t {
  kBool = 0,
  kInt8 = 1,
  kUint8 = 2,
  kInt16 = 3,
  kUint16 = 4,
  kInt32 = 5,
  kUint32 = 6,
  kInt64 = 7,
  kUint64 = 8,
  kFloat16 = 9,
  kBfloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kComplex64 = 13,
  kComplex128 = 14,
};
std::uint32_t item_bytes(DType dtype) noexcept;
const char* dtype_name(DType dtype) noexcept;  // "int64", "bfloat16", ...: static storage
Result<DType> dtype_of_name(std::string_view name);

struct Field {
  std::string name;  // 1..255 bytes of UTF-8 without control characters
  Kind kind = Kind::kBytes;
  DType dtype = DType::kUint8;       // kTensor
  std::vector<std::uint64_t> shape;  // kTensor: all dimensions fixed in version 1; empty: a scalar
  bool fixed() const noexcept { return kind == Kind::kTensor; }
  std::uint64_t fixed_bytes() const noexcept;  // kTensor: bytes of one value
  bool operator==(const Field&) const = default;
};

struct Schema {
  std::vector<Field> fields;  // 1..1024, names distinct
  // Free-form facts about the data set, for example "classes" -> names separated by NUL, in label order. Keys distinct.
  std::vector<std::pair<std::string, std::string>> attributes;
  int find(std::string_view name) const noexcept;  // index of the field, or -1
  std::string to_string() const;                   // "image: bytes, label: int64, mask: uint8[256,256]"
  bool operator==(const Schema&) const = default;
};
Result<void> validate(const Schema& schema);  // kInvalidArgument, naming the field
std::vector<std::byte> encode(const Schema& schema);
Result<Schema> decode_schema(std::span<const std::byte> bytes);
// Parses "image: bytes, label: int64, mask: uint8[256,256], caption: text". kInvalidArgument says what is wrong where.
Result<Schema> parse_schema(std::string_view text);

// ---- superblock ----
enum class State : std::uint32_t { kIncomplete = 0, kCommitted = 1 };

struct Extent {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;  // exact; the space taken is rounded up to kSectorBytes
  std::uint32_t crc = 0;           // CRC32C of the length_bytes (where the section has one sum)
  bool operator==(const Extent&) const = default;
};

struct Superblock {
  std::array<std::byte, 16> volume_id{};  // random
  std::uint64_t generation = 1;           // a committed pack is one generation
  State state = State::kIncomplete;
  std::uint32_t member = 0, members = 1;  // this device's number among the volume's devices; version 1 writes 0 of 1
  std::uint32_t chunk_bytes = kDefaultChunkBytes;
  std::uint32_t record_salt = 0;  // first input of every record's CRC: a record of an older pack fails
  std::uint64_t sample_count = 0;
  std::uint64_t device_bytes = 0;  // the device must be at least this long
  Extent data;                     // chunk 0 starts here; chunk-aligned; whole chunks; crc unused
  Extent names;                    // name blocks; empty when samples have no names; crc unused (each block has its own)
  Extent index;                    // the directory, see index.h; crc of all its bytes
  Extent schema;                   // crc of all its bytes
  // For people and stat; not needed to read.
  std::uint64_t payload_bytes = 0;  // sum of all fields' bytes
  std::uint64_t record_bytes = 0;   // headers and length tables of records
  std::uint64_t padding_bytes = 0;  // alignment, chunk ends
  std::uint64_t unix_time_s = 0;
  std::string writer;  // "dlfs 0.1.0", at most 63 bytes
  bool operator==(const Superblock&) const = default;
};
std::array<std::byte, kSuperblockBytes> encode(const Superblock& superblock);
// **Errors**: kForeign (no magic), kUnsupportedVersion, kCorrupt (bad CRC or impossible values, naming the first).
// kIncomplete is not an error here.
Result<Superblock> decode_superblock(std::span<const std::byte> bytes);

}  // namespace dlfs::layout
