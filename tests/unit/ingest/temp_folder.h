// A folder under the system's temporary folder that vanishes with the test.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "support/temporary_directory.h"

namespace dlfs::ingest {

class TempFolder : public testing_support::TemporaryDirectory {
 public:
  std::string at(const std::string& name) const { return *this / name; }
  void write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
    std::ofstream(at(name), std::ios::binary | std::ios::trunc) << content;
  }
  void make_folder(const std::string& name) const { std::filesystem::create_directories(at(name)); }
};

}  // namespace dlfs::ingest
