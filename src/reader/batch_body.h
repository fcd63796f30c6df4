// One mini-batch on its way: drawn, planned, read, delivered, returned, and used again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "layout/index.h"
#include "layout/record.h"
#include "order/order.h"
#include "reader/buffer.h"
#include "reader/coalesce.h"

namespace dlfs::reader {

struct RecordView {
  const std::byte* data = nullptr;
  std::uint64_t length = 0;
};

// **Thread**: the poller's until it is published, then the consumer's until it is given back.
struct BatchBody {
  // What the consumer sees.
  std::uint64_t epoch = 0, number = 0;
  std::uint32_t padding = 0;
  std::vector<std::uint32_t> ids;
  std::vector<RecordView> records;
  std::vector<layout::FieldValue> fields;  // size * fields of the schema, once `located`
  bool located = false;
  std::uint64_t payload_bytes = 0;
  std::uint32_t skipped = 0;   // bad samples that were left out
  bool end = false;            // no batch: the last epoch is over
  std::optional<Error> error;  // no batch: what went wrong

  // What the poller keeps.
  std::uint64_t serial = 0;
  std::uint64_t relative_epoch = 0;
  std::vector<order::Draw> draws;
  std::vector<layout::Location> places;  // of each sample
  std::vector<Want> missing;             // samples to be read by themselves
  std::vector<Buffer*> sources;          // of each sample
  std::vector<Buffer*> buffers;          // each use of a buffer, counted in its refs
  std::size_t resolved = 0;              // draws [0, resolved) are in `buffers` or `missing`
  std::uint32_t waiting = 0;             // buffers that are not ready
  bool planned = false;                  // all samples have a buffer
  bool flawed = false;                   // a buffer has bad records

  BatchBody* next_returned = nullptr;

  std::size_t size() const noexcept { return ids.size(); }
  bool complete() const noexcept { return planned && waiting == 0; }
};

// Finds every field of every record (verified before) and sets `located`. Fields of a record whose lengths do not add
// up, which happens only when nothing was verified, are empty.
void locate_fields(const layout::RecordLayout& layout, BatchBody& body);

// Copies one field of all samples back to back, as Batch::gather says.
std::uint64_t gather_field(const BatchBody& body, std::size_t field_count, std::size_t field, std::span<std::byte> into,
                           std::span<std::uint64_t> offsets) noexcept;

}  // namespace dlfs::reader
