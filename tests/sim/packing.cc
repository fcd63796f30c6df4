#include "sim/packing.h"

#include <fmt/format.h>

#include "volume/writer_internal.h"

namespace dlfs::sim {
namespace {

// A write that a dead or reset association left at the drive is done within this time, or never. Only then does
// somebody pack again: no target can order it before the writes of the next packer.
constexpr std::uint64_t kDriveForgets_ns = kSecond;

class Packing {
 public:
  explicit Packing(Stage& stage) : stage_(stage), world_(stage.world) {}

  Check play() {
    const std::uint64_t rounds = world_.between(0, 2);
    for (std::uint64_t version = 1; version <= rounds; ++version) {
      if (const Check wrong = under_faults(version)) return wrong;
    }
    const std::uint64_t last = rounds + 1;
    const auto packed = pack(last, false);
    if (!packed.ok()) return "a pack without faults failed: " + packed.error().message;
    if (stage_.plant == Plant::kLostFlush) {
      stage_.lose_power();
      stage_.heal();
    }
    return look(last, true);
  }

 private:
  Check under_faults(std::uint64_t version) {
    stage_.begin_faults();
    if (world_.chance(0.4)) {
      world_.at(world_.now_ns() + world_.between(1'000'000, world_.one_of({kSecond / 50, kSecond / 4, 5 * kSecond})),
                [this, version] {
                  if (packing_ == version) stage_.lose_power();
                });
    }
    if (world_.chance(0.5)) stage_.heal_later(60 * kSecond);
    packing_ = version;
    const auto packed = pack(version, world_.chance(0.1));
    packing_ = 0;
    world_.mark(packed.ok() ? "pack" : "failed pack", version);
    world_.note(packed.ok() ? "packed" : "the pack failed: " + std::string(code_name(packed.error().code)));
    if (packed.ok() && world_.chance(0.5)) stage_.lose_power();  // what was committed was flushed
    stage_.heal();
    if (!packed.ok() && !documented(packed.error().code))
      return fmt::format("pack {} failed in a way that is not documented: {}", version, packed.error().message);
    world_.idle(kDriveForgets_ns);
    return look(version, packed.ok());
  }

  // `leaves`: gives up half-way.
  Result<void> pack(std::uint64_t version, bool leaves) {
    volume::WriterOptions options;
    options.chunk_bytes = 64u << 10;
    options.overwrite = true;
    options.pool_bytes = 1u << 20;
    options.seed = version;
    auto writer = volume::create_writer(
        stage_.url(), layout::parse_schema("data: bytes").value(), options,
        [this](std::string_view text, const block::OpenOptions& open) { return stage_.open_device(text, open); });
    if (!writer.ok()) return std::move(writer).error();
    const std::size_t last = leaves ? world_.prng.below(stage_.data.size()) : stage_.data.size();
    for (std::size_t id = 0; id < last; ++id) {
      const auto bytes = stage_.data.content(id, version);
      const layout::FieldValue field(bytes);
      if (auto added = (*writer)->append(DataSet::name(id), std::span(&field, 1)); !added.ok()) return added;
      if (stage_.faulty() && world_.chance(0.05)) world_.idle(world_.prng.below(kSecond / 2));  // the source is slow
    }
    if (leaves) return Error{Code::kDeviceLost, "the packer left"};
    auto committed = (*writer)->commit();
    if (!committed.ok()) return std::move(committed).error();
    return {};
  }

  Check look(std::uint64_t version, bool packed) {
    auto mounted = stage_.mount();
    const char* how = packed ? "done" : "failed";
    if (!mounted.ok()) {
      const Code code = mounted.error().code;
      const bool never = stage_.version == 0 && code == Code::kForeign;
      if (!packed && (code == Code::kIncomplete || never)) {
        world_.mark("incomplete volume", version);
        return {};
      }
      return fmt::format("after pack {} ({}) the volume does not mount: {}", version, how, mounted.error().message);
    }
    for (const std::uint64_t candidate : {version, stage_.version}) {
      if (candidate == 0 || (packed && candidate != version) || !holds(**mounted, candidate)) continue;
      stage_.version = candidate;
      return {};
    }
    return fmt::format("after pack {} ({}) the volume mounts and holds neither the old nor the new data", version, how);
  }

  bool holds(const volume::Volume& volume, std::uint64_t version) {
    if (volume.size() != stage_.data.size()) return false;
    for (std::uint32_t id = 0; id < stage_.data.size(); ++id) {
      const auto record = volume.read(SampleId{id});
      if (!record.ok() || !stage_.data.is_content(record->fields[0], id, version)) return false;
    }
    return true;
  }

  Stage& stage_;
  World& world_;
  std::uint64_t packing_ = 0;
};

}  // namespace

Check play_packing(Stage& stage) { return Packing(stage).play(); }

}  // namespace dlfs::sim
