// dlfs export: the files of a volume, as they were packed.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/try.h"
#include "command.h"
#include "export_tree.h"
#include "name_pages.h"
#include "output.h"
#include "progress.h"
#include "signals.h"
#include "units.h"

namespace dlfs::tools {
namespace {

constexpr std::size_t kPage = 1024;
constexpr std::size_t kGroupSamples = 256;
constexpr std::uint64_t kGroupBytes = 16u << 20;  // samples read together
constexpr std::uint64_t kLargeBytes = 4u << 20;   // samples read in parts
constexpr std::size_t kPartBytes = 1u << 20;

struct ExportOptions {
  std::string url, folder, field;
  bool force = false, quiet = false;
};

class Export {
 public:
  Export(const Volume& volume, ExportTree& tree, std::size_t field, bool quiet)
      : volume_(volume), tree_(tree), field_(field), progress_("exporting", quiet) {}

  Result<void> run() {
    return for_each_page(volume_, kPage, [this](std::span<const NamedId> page) -> Result<bool> {
      DLFS_TRY(take(page));
      return true;
    });
  }
  std::uint64_t samples() const noexcept { return samples_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  // Cuts a page into groups that are read together; large samples go alone, in parts.
  Result<void> take(std::span<const NamedId> page) {
    std::size_t begin = 0;
    std::uint64_t group_bytes = 0;
    for (std::size_t i = 0; i < page.size(); ++i) {
      DLFS_TRY_ASSIGN(const std::uint64_t size, volume_.field_size(page[i].first, field_));
      const bool large = size > kLargeBytes;
      if (large || i - begin == kGroupSamples || group_bytes + size > kGroupBytes) {
        DLFS_TRY(write_group(page.subspan(begin, i - begin)));
        begin = i;
        group_bytes = 0;
      }
      if (large) {
        DLFS_TRY(write_large(page[i]));
        begin = i + 1;
      } else {
        group_bytes += size;
      }
    }
    return write_group(page.subspan(begin));
  }

  Result<void> write_group(std::span<const NamedId> group) {
    if (group.empty()) return {};
    std::vector<std::uint32_t> ids;
    for (const NamedId& sample : group) ids.push_back(sample.first);
    DLFS_TRY_ASSIGN(const Batch batch, volume_.read(ids));
    for (std::size_t i = 0; i < group.size(); ++i) {
      DLFS_TRY_ASSIGN(NewFile file, tree_.create(file_name(group[i])));
      const Bytes content = batch.field(i, field_);
      DLFS_TRY(file.write(content));
      DLFS_TRY(file.close());
      DLFS_TRY(advance(content.size(), 1));
    }
    return {};
  }

  Result<void> write_large(const NamedId& sample) {
    DLFS_TRY_ASSIGN(const File from, volume_.open_id(sample.first, field_));
    DLFS_TRY_ASSIGN(NewFile to, tree_.create(file_name(sample)));
    std::vector<std::byte> part(kPartBytes);
    for (std::uint64_t at = 0; at < from.size();) {
      DLFS_TRY_ASSIGN(const std::uint64_t got, from.read(part, at));
      if (got == 0)
        return base::make_error(Code::kCorrupt, "sample {} ends at byte {} of {}", sample.first, at, from.size());
      DLFS_TRY(to.write(std::span(part).first(got)));
      at += got;
      DLFS_TRY(advance(got, 0));
    }
    DLFS_TRY(to.close());
    return advance(0, 1);
  }

  static std::string file_name(const NamedId& sample) {
    return sample.second.empty() ? std::to_string(sample.first) : sample.second;
  }

  Result<void> advance(std::uint64_t bytes, std::uint64_t samples) {
    bytes_ += bytes;
    samples_ += samples;
    progress_.update(bytes_, 0, samples_, volume_.size());
    if (interrupted() != 0)
      return interrupted_error("interrupted: the files written so far are complete but for the last one");
    return {};
  }

  const Volume& volume_;
  ExportTree& tree_;
  const std::size_t field_;
  Progress progress_;
  std::uint64_t samples_ = 0, bytes_ = 0;
};

Result<int> run(const ExportOptions& options, bool json) {
  catch_interrupts();
  DLFS_TRY_ASSIGN(const Volume volume, Volume::mount(options.url));
  DLFS_TRY_ASSIGN(const std::size_t field, field_index(volume.schema(), options.field));
  DLFS_TRY_ASSIGN(ExportTree tree, ExportTree::open(options.folder, options.force));
  std::uint64_t samples = 0, bytes = 0;
  {
    Export work(volume, tree, field, options.quiet || json);
    DLFS_TRY(work.run());
    samples = work.samples();
    bytes = work.bytes();
  }
  if (json) {
    DLFS_TRY(print({{"folder", base::escape(options.folder)}, {"samples", samples}, {"bytes", bytes}}));
  } else if (!options.quiet) {
    Output out;
    out.line(fmt::format("exported {}, {}, to {}", plural(samples, "file"), size_text(static_cast<double>(bytes)),
                         base::escape(options.folder)));
    DLFS_TRY(out.finish());
  }
  return kExitOk;
}

}  // namespace

void add_export(CLI::App& app, Request& request) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command =
      add_command(app, request, "export", "Write every sample to a file of its name, or of its id where it has no name",
                  "dlfs export train.dlfs photos-again");
  add_volume(*command, options->url);
  command
      ->add_option("FOLDER", options->folder, "Where to write; made if need be. Names that would leave it are refused")
      ->required()
      ->type_name("");
  command->add_option("--field", options->field, "The field to write; by default the first")->type_name("NAME");
  command->add_flag("--force", options->force, "Overwrite files that exist");
  command->add_flag("--quiet", options->quiet, "Show neither progress nor summary");
  command->callback([options, &request] { request.run = [options, &request] { return run(*options, request.json); }; });
}

}  // namespace dlfs::tools
