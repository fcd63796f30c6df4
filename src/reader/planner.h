// Draws the batches ahead and decides what is read for them, into which memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "order/order.h"
#include "reader/cache.h"
#include "reader/channel.h"
#include "reader/coalesce.h"
#include "reader/fetcher.h"
#include "reader/fifo.h"
#include "reader/policy.h"
#include "volume/volume.h"

namespace dlfs::reader {

// The epochs of a reader, one after the other, and the one behind the current one, which says when a unit is needed
// next.
class EpochWalk {
 public:
  static Result<EpochWalk> begin(const order::Parameters& parameters, std::uint64_t epochs, std::uint64_t start_batch,
                                 std::shared_ptr<const volume::Volume> volume);

  // The next batch of this rank into `body`; false when the last epoch is over.
  Result<bool> draw(BatchBody& body);
  // When the epoch after `relative_epoch` needs the unit; kNeverUsed when there is none or it does not.
  std::uint64_t next_use(std::uint64_t relative_epoch, std::uint64_t unit);
  const order::Epoch& epoch() const noexcept { return *epoch_; }
  std::uint64_t relative() const noexcept { return relative_; }  // number of the current epoch from the first on
  std::shared_ptr<const order::Epoch> shared_epoch() const noexcept { return epoch_; }
  // Samples that this rank has still to draw, at most; as a floating point number because an endless walk has
  // infinitely many.
  double draws_left() const noexcept;

 private:
  EpochWalk(std::shared_ptr<const volume::Volume> volume, std::shared_ptr<const order::Epoch> epoch,
            std::uint64_t epochs);
  Result<std::shared_ptr<const order::Epoch>> create(std::uint64_t relative_epoch) const;
  bool exists(std::uint64_t relative_epoch) const noexcept { return epochs_ == 0 || relative_epoch < epochs_; }

  std::shared_ptr<const volume::Volume> volume_;
  std::shared_ptr<const order::Placement> placement_;
  order::Parameters first_;
  std::uint64_t epochs_;
  std::uint64_t relative_ = 0;
  std::shared_ptr<const order::Epoch> epoch_, following_;  // number relative_ and, once asked for, relative_ + 1
  order::Cursor cursor_;
};

// **Thread**: one at a time.
class Planner {
 public:
  enum class Step {
    kPlanned,   // something was planned
    kNoMemory,  // the next batch to be planned needs memory that is not free
    kDone,      // every batch of the last epoch is planned
    kFailed,    // the order cannot go on: error()
  };

  Planner(std::shared_ptr<const volume::Volume> volume, const Policy& policy, EpochWalk walk, Channel& channel,
          Cache& cache, Fetcher& fetcher);

  // Plans the next batch, or a group of batches together, and puts them into `line` in order. At most `room` new ones.
  Step step(Fifo<BatchBody*>& line, std::size_t room);
  // For the case that nothing else will free memory: takes what is not in use and plans the next batch with as little
  // as it can.
  Step rescue();
  // Bytes that the next batch needs to be planned at all, beside what is in use.
  std::uint64_t wanted_bytes() const noexcept { return wanted_bytes_; }
  const Error& error() const noexcept { return error_; }

  // A batch is over: its buffers lose a user.
  void release(BatchBody& body);
  // A request of the buffer came back after its deadline.
  void settle(Buffer& buffer);
  // Lists the records of the buffer's slots, in their order, looked up together.
  void list_records(Buffer& buffer);
  // Queues one read for every record of a buffer whose read failed.
  void read_singly(Buffer& buffer);

 private:
  BatchBody* draw(Fifo<BatchBody*>& line);
  void end_epoch();
  Step plan_batch_by_piece(BatchBody& body);
  Step plan_group(std::size_t room, Fifo<BatchBody*>& line);
  void resolve_draw(BatchBody& body, std::size_t i, bool may_fetch);
  bool plan_piece(BatchBody& body, std::size_t i);
  void prefetch(const order::Draw& draw) const noexcept;
  void fill_group(std::size_t room, Fifo<BatchBody*>& line);
  void resolve(BatchBody& body, bool may_fetch);
  bool plan_first();
  void find_extents(const CoalesceRules& rules);
  bool plan_missing(std::size_t count);
  void use_want(const Want& want, Buffer& buffer);
  void unresolve(BatchBody& body);
  void use(BatchBody& body, std::size_t i, Buffer& buffer, std::uint64_t address, std::uint64_t length);
  Buffer* fetch_slots(std::uint64_t unit, std::uint64_t begin, std::uint64_t end);
  Buffer* fetch_chunk_of(const layout::Location& at);
  void enqueue(Buffer& buffer);
  std::uint64_t unit_at(std::uint64_t address) const noexcept;
  bool worth_a_chunk(const layout::Location& at) const noexcept;
  void look_up(BatchBody& body) const;
  // Records are listed once a piece, and draws find them there, instead of looking every draw up in the directory.
  bool lists_pieces() const noexcept { return policy_.by_piece && !policy_.whole_units; }

  std::shared_ptr<const volume::Volume> volume_;
  const directory::Directory& directory_;
  Policy policy_;
  EpochWalk walk_;
  Channel& channel_;
  Cache& cache_;
  Fetcher& fetcher_;
  CoalesceRules rules_;
  std::uint64_t credit_bytes_;        // for reading whole chunks
  std::uint64_t relative_epoch_ = 0;  // of the last draw
  bool slot_order_;                   // draws count slots, not ids
  bool done_ = false;
  Error error_;
  std::uint64_t next_serial_ = 1;
  std::uint64_t wanted_bytes_ = 0;
  std::uint64_t evictions_seen_ = 0;
  std::uint64_t degraded_batches_ = 0, degraded_left_ = 0;
  std::vector<BatchBody*> group_;  // drawn, not planned; the last of the line
  std::vector<Want> wants_;
  std::vector<Extent> extents_;
  std::vector<Cache::Range> ranges_;
  std::vector<Buffer*> private_;
  std::vector<std::uint32_t> ids_;
  std::vector<layout::Location> places_;
};

}  // namespace dlfs::reader
