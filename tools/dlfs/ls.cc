// dlfs ls: the names of a volume.
#include <fnmatch.h>

#include <memory>

#include "base/error.h"
#include "base/try.h"
#include "command.h"
#include "name_pages.h"
#include "output.h"

namespace dlfs::tools {
namespace {

constexpr std::size_t kPage = 4096;

struct LsOptions {
  std::string url, pattern;
  bool with_sizes = false, nul = false;
};

// A pattern with one of *?[ must match the whole name, '*' also across '/'; any other is a prefix.
bool matches(const std::string& pattern, bool glob, const std::string& name) {
  return glob ? fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0 : name.starts_with(pattern);
}

class Ls {
 public:
  Ls(const Volume& volume, const LsOptions& options, bool json)
      : volume_(volume),
        options_(options),
        json_(json),
        glob_(options.pattern.find_first_of("*?[") != std::string::npos) {}

  Result<int> run() {
    if (json_) out_.write("[");
    DLFS_TRY(for_each_page(volume_, kPage, [this](std::span<const NamedId> page) { return show(page); }));
    if (json_) out_.write("]\n");
    DLFS_TRY(out_.finish());
    return kExitOk;
  }

 private:
  Result<bool> show(std::span<const NamedId> page) {
    for (const auto& [id, name] : page) {
      if (!matches(options_.pattern, glob_, name)) continue;
      std::uint64_t size = 0;
      if (options_.with_sizes || json_) {
        DLFS_TRY_ASSIGN(size, volume_.field_size(id));
      }
      show_one(id, name, size);
      if (!out_.good()) return false;
    }
    return true;
  }

  void show_one(std::uint32_t id, const std::string& name, std::uint64_t size) {
    if (json_) {
      Json json = {{"id", id}, {"size", size}};
      put_name(json, name);
      out_.write(first_ ? "\n" : ",\n");
      out_.write(dump(json));
      first_ = false;
      return;
    }
    if (options_.with_sizes) out_.write(fmt::format("{:>10} {:>12} ", id, size));
    out_.write(options_.nul || !out_.terminal() ? name : base::escape(name));
    out_.write(options_.nul ? std::string_view("\0", 1) : std::string_view("\n"));
  }

  const Volume& volume_;
  const LsOptions& options_;
  const bool json_, glob_;
  Output out_;
  bool first_ = true;
};

}  // namespace

void add_ls(CLI::App& app, Request& request) {
  auto options = std::make_shared<LsOptions>();
  CLI::App* command = add_command(app, request, "ls", "List the names of the samples, in id order",
                                  "dlfs ls -l train.dlfs 'cat/*.jpg'");
  add_volume(*command, options->url);
  command
      ->add_option("PATTERN", options->pattern,
                   "Only names that begin with this, or, if it has one of *?[, that match it whole")
      ->type_name("");
  command->add_flag("-l", options->with_sizes, "Show id and size in bytes (of the first field) before the name");
  command->add_flag("-0", options->nul,
                    "End each name with a NUL byte. Otherwise names are escaped on a terminal, and raw elsewhere");
  command->callback([options, &request] {
    request.run = [options, &request]() -> Result<int> {
      DLFS_TRY_ASSIGN(const Volume volume, Volume::mount(options->url));
      return Ls(volume, *options, request.json).run();
    };
  });
}

}  // namespace dlfs::tools
