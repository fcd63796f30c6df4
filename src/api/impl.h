// What the public handles (dlfs.hpp) hold. Private to the module.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/try.h"
#include "dlfs/dlfs.hpp"
#include "order/order.h"
#include "reader/reader.h"
#include "volume/volume.h"
#include "volume/writer.h"

namespace dlfs {

struct Volume::Impl {
  std::shared_ptr<const volume::Volume> volume;
  Schema schema;
};

struct Batch::Impl {
  std::unique_ptr<reader::Batch> batch;
};

struct Sequence::Impl {
  std::unique_ptr<reader::Reader> reader;
};

struct File::Impl {
  std::shared_ptr<const volume::Volume> volume;
  SampleId id;
  std::size_t field = 0;
  std::uint64_t size = 0;
  std::optional<volume::OwnedRecord> record;  // the whole sample, unless it is a large one
  std::unique_ptr<volume::KeptPiece> kept;    // of a large one
};

struct Writer::Impl {
  std::unique_ptr<volume::Writer> writer;
  std::string url;
};

namespace api {

// The two forms of a schema: the public one spells data types as NumPy does, the format numbers them.
Schema from_layout(const layout::Schema& schema);
Result<layout::Schema> to_layout(const Schema& schema);  // kInvalidArgument names the field

// The facts that the superblock holds, for stat and for commit.
void fill_info(const layout::Superblock& superblock, VolumeInfo& info);

Result<void> check_id(const volume::Volume& volume, std::uint32_t id);
Result<void> check_field(const volume::Volume& volume, std::size_t field);

// The volume's units and slots in the form in which chunk orders ask for them.
std::shared_ptr<const order::Placement> placement_of(std::shared_ptr<const volume::Volume> volume);

order::Parameters parameters_of(const SequenceOptions& options);

}  // namespace api
}  // namespace dlfs
