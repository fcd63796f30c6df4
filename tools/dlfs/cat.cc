// dlfs cat: one sample's bytes.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/try.h"
#include "command.h"
#include "output.h"

namespace dlfs::tools {
namespace {

constexpr std::size_t kPartBytes = 1u << 20;

struct CatOptions {
  std::string url, name, field;
  std::optional<std::uint32_t> id;
};

Result<File> open(const Volume& volume, const CatOptions& options) {
  DLFS_TRY_ASSIGN(const std::size_t field, field_index(volume.schema(), options.field));
  return options.id ? volume.open_id(*options.id, field) : volume.open(options.name, field);
}

Result<int> describe(const Volume& volume, const File& file) {
  DLFS_TRY_ASSIGN(const std::string name, volume.name(file.id()));
  Json json = {{"id", file.id()}, {"size", file.size()}};
  put_name(json, name);
  DLFS_TRY(print(json));
  return kExitOk;
}

Result<int> run(const CatOptions& options, bool json) {
  DLFS_TRY_ASSIGN(const Volume volume, Volume::mount(options.url));
  DLFS_TRY_ASSIGN(const File file, open(volume, options));
  if (json) return describe(volume, file);
  Output out;
  std::vector<std::byte> part(std::min<std::uint64_t>(kPartBytes, file.size()));
  for (std::uint64_t at = 0; at < file.size() && out.good();) {
    DLFS_TRY_ASSIGN(const std::uint64_t got, file.read(part, at));
    if (got == 0)
      return base::make_error(Code::kCorrupt, "sample {} ends at byte {} of {}", file.id(), at, file.size());
    out.write({reinterpret_cast<const char*>(part.data()), got});
    at += got;
  }
  DLFS_TRY(out.finish());
  return kExitOk;
}

}  // namespace

void add_cat(CLI::App& app, Request& request) {
  auto options = std::make_shared<CatOptions>();
  CLI::App* command = add_command(app, request, "cat",
                                  "Write one sample's bytes to standard output (with --json: its id, size and name)",
                                  "dlfs cat train.dlfs cat/0001.jpg > 0001.jpg");
  add_volume(*command, options->url);
  CLI::Option* name = command->add_option("NAME", options->name, "The sample's name")->type_name("");
  CLI::Option* id =
      add_count(*command, "--id", "The sample's id, instead of its name", 0, std::numeric_limits<std::uint32_t>::max(),
                [&id = options->id](std::uint64_t given) { id = static_cast<std::uint32_t>(given); });
  command->add_option("--field", options->field, "The field; by default the first")->type_name("NAME");
  command->callback([options, name, id, &request] {
    if ((name->count() > 0) == (id->count() > 0)) throw CLI::ValidationError("cat", "give either NAME or --id N");
    request.run = [options, &request] { return run(*options, request.json); };
  });
}

}  // namespace dlfs::tools
