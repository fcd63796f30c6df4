// Device URLs: which kind of device, and where. Parsing only; nothing is opened.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dlfs/result.h"

namespace dlfs::block {

enum class Scheme : std::uint8_t { kFile, kMemory, kNull, kNvmeTcp };

struct Url {
  Scheme scheme = Scheme::kFile;
  std::string path;                 // kFile: the path, any bytes but NUL. kMemory: the name. kNvmeTcp: the whole URL
  std::uint64_t size_bytes = 0;     // kMemory: 0 when not given. kNull
  std::uint32_t block_bytes = 512;  // kMemory, kNull: for tests of other block sizes
};

// Takes
//   PATH                          a file or block device. A path whose first part holds ':' is written ./PATH or
//   file:PATH file:PATH, file:///PATH       the same; the rest is literal: no %-escapes, no query
//   mem:NAME[?size=1GiB][&block=4096]   NAME of letters, digits and . _ - /
//   null:SIZE[?block=4096]   reads answer from a constant buffer, writes vanish: for benchmarks of what is around it
//   nvme-tcp://HOST[:PORT][,HOST[:PORT]...]/NQN[?nsid=1&...]   see block/nvme_tcp.h
// **Errors**: kInvalidArgument (the sentence says what would do), kUnsupported (a scheme that this build lacks).
Result<Url> parse_url(std::string_view text);

// Whole numbers, 1 to 2^63-1 bytes, with B, KiB, MiB, GiB, TiB, kB, MB, GB, TB or nothing: "4096", "64KiB".
// **Errors**: kInvalidArgument.
Result<std::uint64_t> parse_size(std::string_view text);

}  // namespace dlfs::block
