// A folder under the system's temporary folder that vanishes with the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace dlfs::ingest {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dlfs-ingest-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string at(const std::string& name) const { return path_.string() + "/" + name; }
  void write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
    std::ofstream(at(name), std::ios::binary | std::ios::trunc) << content;
  }
  void make_folder(const std::string& name) const { std::filesystem::create_directories(at(name)); }

 private:
  std::filesystem::path path_;
};

}  // namespace dlfs::ingest
