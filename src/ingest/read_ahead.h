// Reads source files ahead of the packer, in the order in which it will want them, by a few threads and in bounded
// memory.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "ingest/folder.h"

namespace dlfs::ingest {

// A file as it reaches the packer.
struct LoadedFile {
  std::uint64_t index = 0;  // in Folder::files()
  SourceFile file;
  std::vector<std::byte> bytes;  // empty when the file is larger than whole_bytes: stream it with SourceReader
  bool whole = false;            // `bytes` holds the file
  std::optional<Error> error;    // the file could not be read (kSourceChanged), or the list of files could not
};

struct ReadAheadOptions {
  unsigned threads = 4;
  std::size_t memory_bytes = 64u << 20;  // of files in memory; one file may exceed it
  std::uint64_t whole_bytes = 8u << 20;  // larger files are left to the packer
  std::size_t files = 1024;              // most files in memory
};

// **Thread**: one consumer; owns its threads. **Lifetime**: `folder` must outlive it.
class ReadAhead {
 public:
  // The p-th file delivered is files().at(order(p)), p = 0..count()-1. `order` must be callable from several threads.
  ReadAhead(const Folder& folder, std::function<std::uint64_t(std::uint64_t)> order,
            const ReadAheadOptions& options = {});
  ~ReadAhead();  // stops early; waits for reads under way
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The next file, valid until the next call; null at the end. **Blocks** while it is being read.
  const LoadedFile* next();

 private:
  struct Slot {
    LoadedFile loaded;
    std::uint64_t charged_bytes = 0;
    bool ready = false;
  };
  void work();
  bool may_start(std::uint64_t bytes) const;
  void load(LoadedFile& loaded) const;
  std::uint64_t charge(const SourceFile& file) const;

  const Folder& folder_;
  const std::function<std::uint64_t(std::uint64_t)> order_;
  const ReadAheadOptions options_;
  const std::uint64_t count_;
  std::mutex mutex_;
  std::condition_variable room_, arrived_;
  std::vector<Slot> slots_;      // position p lives in slot p % size
  std::uint64_t started_ = 0;    // positions handed to threads, in order
  std::uint64_t released_ = 0;   // positions the consumer is done with
  std::uint64_t delivered_ = 0;  // positions handed out by next()
  std::uint64_t charged_bytes_ = 0;
  bool stop_ = false;
  std::vector<std::jthread> threads_;  // last: joined first
};

}  // namespace dlfs::ingest
