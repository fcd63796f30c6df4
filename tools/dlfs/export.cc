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
constexpr std::size_t kListedLeftOut = 1000;  // in JSON

struct ExportOptions {
  std::string url, folder, field;
  bool force = false, quiet = false, skip_errors = false;
};

class Export {
 public:
  Export(const Volume& volume, ExportTree& tree, std::size_t field, const ExportOptions& options, bool json)
      : volume_(volume),
        tree_(tree),
        field_(field),
        skip_errors_(options.skip_errors),
        json_(json),
        progress_("exporting", options.quiet || json) {}

  Result<void> run() {
    return for_each_page(volume_, kPage, [this](std::span<const NamedId> page) -> Result<bool> {
      DLFS_TRY(take(page));
      return true;
    });
  }
  std::uint64_t samples() const noexcept { return samples_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t left_out() const noexcept { return left_out_; }
  const Json& listed() const noexcept { return listed_; }

 private:
  // Cuts a page into groups that are read together; large samples go alone, in parts.
  Result<void> take(std::span<const NamedId> page) {
    std::size_t begin = 0;
    std::uint64_t group_bytes = 0;
    for (std::size_t i = 0; i < page.size(); ++i) {
      DLFS_TRY_ASSIGN(const std::uint64_t size, size_of(page[i]));
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
    DLFS_TRY_ASSIGN(const Batch batch, volume_.read(ids, skip_errors_ ? OnError::kSkip : OnError::kRaise));
    std::size_t read = 0;  // in the batch, which has no skipped samples
    for (const NamedId& sample : group) {
      if (read == batch.size() || batch.ids()[read] != sample.first) {
        DLFS_TRY(leave_out(sample));
        continue;
      }
      const Bytes content = batch.field(read++, field_);
      DLFS_TRY_ASSIGN(NewFile file, tree_.create(file_name(sample)));
      DLFS_TRY(file.write(content));
      DLFS_TRY(file.close());
      DLFS_TRY(advance(content.size(), 1));
    }
    return {};
  }

  // 0 where it cannot be read and that is not to stop the export: reading the sample then says why.
  Result<std::uint64_t> size_of(const NamedId& sample) {
    auto size = volume_.field_size(sample.first, field_);
    if (!size.ok() && skip_errors_) return std::uint64_t{0};
    return size;
  }

  // A sample that a batch was read without: it is read alone once more to learn why.
  Result<void> leave_out(const NamedId& sample) {
    const auto again = volume_.read(std::span(&sample.first, 1));
    return leave_out(sample, again.ok() ? "it could not be read at first" : again.error().message);
  }

  Result<void> leave_out(const NamedId& sample, const std::string& why) {
    ++left_out_;
    if (json_ && listed_.size() < kListedLeftOut) {
      Json item = {{"id", sample.first}};
      put_name(item, sample.second);
      item["why"] = why;
      listed_.push_back(std::move(item));
    }
    if (!json_) progress_.note("dlfs export: left out: " + why);
    return advance(0, 0);
  }

  Result<void> write_large(const NamedId& sample) {
    const auto opened = volume_.open_id(sample.first, field_);
    if (!opened.ok() && skip_errors_) return leave_out(sample, opened.error().message);
    if (!opened.ok()) return opened.error();
    const File& from = *opened;
    if (skip_errors_) {  // nothing is written of a sample that is damaged further on
      if (const auto whole = read_through(from); !whole.ok()) return leave_out(sample, whole.error().message);
    }
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

  static Result<void> read_through(const File& from) {
    std::vector<std::byte> part(kPartBytes);
    for (std::uint64_t at = 0; at < from.size();) {
      DLFS_TRY_ASSIGN(const std::uint64_t got, from.read(part, at));
      if (got == 0) return base::make_error(Code::kCorrupt, "the sample ends at byte {} of {}", at, from.size());
      at += got;
    }
    return {};
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
  const bool skip_errors_, json_;
  Progress progress_;
  std::uint64_t samples_ = 0, bytes_ = 0, left_out_ = 0;
  Json listed_ = Json::array();
};

Result<int> run(const ExportOptions& options, bool json) {
  DLFS_TRY_ASSIGN(const Volume volume, Volume::mount(options.url));
  catch_interrupts();  // until here a signal ends it at once: there is nothing to clean up
  DLFS_TRY_ASSIGN(const std::size_t field, field_index(volume.schema(), options.field));
  DLFS_TRY_ASSIGN(ExportTree tree, ExportTree::open(options.folder, options.force));
  std::uint64_t samples = 0, bytes = 0, left_out = 0;
  Json listed;
  {
    Export work(volume, tree, field, options, json);
    DLFS_TRY(work.run());
    samples = work.samples();
    bytes = work.bytes();
    left_out = work.left_out();
    listed = work.listed();
  }
  if (json) {
    DLFS_TRY(print({{"folder", base::escape(options.folder)},
                    {"samples", samples},
                    {"bytes", bytes},
                    {"left_out_count", left_out},
                    {"left_out", std::move(listed)}}));
  } else if (!options.quiet) {
    Output out;
    out.line(fmt::format("exported {}, {}, to {}", plural(samples, "file"), size_text(static_cast<double>(bytes)),
                         base::escape(options.folder)));
    if (left_out > 0) out.line(fmt::format("left out {}, named above", plural(left_out, "damaged sample")));
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
  command->add_flag("--skip-errors", options->skip_errors,
                    "Leave out samples that are damaged or cannot be read, naming each, instead of stopping");
  command->add_flag("--quiet", options->quiet, "Show neither progress nor summary");
  command->callback([options, &request] { request.run = [options, &request] { return run(*options, request.json); }; });
}

}  // namespace dlfs::tools
