// Which chunk size suits the sizes of a data set.
#pragma once

#include <cstdint>
#include <span>

#include "dlfs/result.h"
#include "ingest/catalog.h"

namespace dlfs::ingest {

// A power of two from 64 KiB to 1 MiB: 256 KiB where chunks of that size are packed well; else, since a record does not
// cross a chunk's edge and one longer than a chunk owns whole chunks, the size that leaves the least room empty.
// `record_bytes`: sizes of some records, in the order in which they would be placed. Pure.
std::uint32_t suit_chunk_bytes(std::span<const std::uint64_t> record_bytes) noexcept;

// The same for files of which up to some thousand are looked at. **Errors**: those of Catalog::at().
Result<std::uint32_t> suit_chunk_bytes(const Catalog& files);

}  // namespace dlfs::ingest
