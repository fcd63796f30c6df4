// How the C API fails: codes, sentences, and exceptions that stay inside.
#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

#include "api/c_handles.h"
#include "api_support.h"

namespace dlfs {
namespace {

template <class Thrown>
dlfs_error error_of(const Thrown& thrown) {
  dlfs_error error;
  EXPECT_EQ(api::guarded<int>(&error, -1, [&]() -> Result<int> { throw thrown; }), -1);
  return error;
}

TEST(CApiErrors, exceptions_become_codes) {
  EXPECT_EQ(error_of(std::bad_alloc()).code, DLFS_E_OUT_OF_MEMORY);
  EXPECT_EQ(error_of(std::length_error("vector")).code, DLFS_E_OUT_OF_MEMORY);
  EXPECT_EQ(error_of(std::runtime_error("strange")).code, DLFS_E_IO);
  EXPECT_STREQ(error_of(std::runtime_error("strange")).message, "strange");
  EXPECT_EQ(error_of(std::system_error(EAGAIN, std::generic_category(), "thread")).errno_value, EAGAIN);
  EXPECT_EQ(error_of(17).code, DLFS_E_IO);
  EXPECT_NE(error_of(17).message[0], '\0');
}

TEST(CApiErrors, without_a_place_for_the_error_the_failure_still_shows) {
  EXPECT_EQ(api::guarded<int>(nullptr, -1, []() -> Result<int> { throw std::bad_alloc(); }), -1);
  EXPECT_EQ(api::guarded<int>(nullptr, -1, []() -> Result<int> { return Error{Code::kIo, "x"}; }), -1);
  EXPECT_EQ(dlfs_mount("/nonexistent/v.dlfs", nullptr, nullptr), nullptr);
}

TEST(CApiErrors, everything_of_an_error_is_passed_on_and_success_clears_it) {
  dlfs_error error;
  std::memset(&error, 0xFF, sizeof error);
  api::store(&error, Error{Code::kNoSpace, "the disk is full", ENOSPC, 0x281});
  EXPECT_EQ(error.code, DLFS_E_NO_SPACE);
  EXPECT_EQ(error.errno_value, ENOSPC);
  EXPECT_EQ(error.nvme_status, 0x281);
  EXPECT_STREQ(error.message, "the disk is full");
  EXPECT_EQ(api::guarded<int>(&error, -1, []() -> Result<int> { return 5; }), 5);
  EXPECT_EQ(error.code, DLFS_OK);
  EXPECT_EQ(error.errno_value, 0);
  EXPECT_EQ(error.nvme_status, 0);
  EXPECT_STREQ(error.message, "");
}

TEST(CApiErrors, long_messages_are_cut_at_a_character) {
  constexpr std::size_t kRoom = sizeof(dlfs_error::message);
  for (std::size_t length = kRoom - 12; length < kRoom + 12; ++length) {
    std::string text(length % 2, 'a');
    while (text.size() < length) text += "\xc3\xa9";  // two bytes each
    dlfs_error error;
    api::store(&error, Error{Code::kIo, text});
    const std::string_view got = error.message;
    ASSERT_LT(got.size(), kRoom);
    if (text.size() < kRoom) {
      EXPECT_EQ(got, text);
      continue;
    }
    ASSERT_TRUE(got.ends_with("..."));
    EXPECT_TRUE(text.starts_with(got.substr(0, got.size() - 3)));
    EXPECT_EQ(static_cast<unsigned char>(got[got.size() - 4]), 0xA9) << "cut within a character";
    EXPECT_GE(got.size(), kRoom - 4);
  }
}

TEST(CApiErrors, codes_have_names) {
  EXPECT_STREQ(dlfs_code_name(DLFS_OK), "ok");
  EXPECT_STREQ(dlfs_code_name(DLFS_E_NOT_FOUND), "not found");
  for (int code = 1; code <= DLFS_E_SCHEMA_MISMATCH; ++code) EXPECT_STRNE(dlfs_code_name(code), "unknown") << code;
  EXPECT_STREQ(dlfs_code_name(DLFS_E_SCHEMA_MISMATCH + 1), "unknown");
  EXPECT_STREQ(dlfs_code_name(-5), "unknown");
}

// Every function that takes a handle or a pointer that it needs, called with NULL for it.
TEST(CApiErrors, null_arguments_are_clean_errors) {
  dlfs_error e;
  const auto invalid = [&](bool failed) {
    const bool right = failed && e.code == DLFS_E_INVALID_ARGUMENT && std::strstr(e.message, "NULL") != nullptr;
    if (!right) ADD_FAILURE() << e.code << ": " << e.message;
    std::memset(&e, 0, sizeof e);
  };
  const auto name_visitor = [](void*, std::uint32_t, const char*) { return true; };
  const auto order_visitor = [](void*, std::uint64_t, const std::uint32_t*, std::size_t) { return true; };
  const auto source = [](void*, void*, std::size_t) { return true; };
  char buffer[8];
  dlfs_field_info field;
  dlfs_volume_info info;
  dlfs_verify_report report;
  dlfs_statistics statistics;
  invalid(dlfs_mount(nullptr, nullptr, &e) == nullptr);
  invalid(dlfs_find(nullptr, "a", &e) == -1);
  invalid(dlfs_name(nullptr, 0, buffer, sizeof buffer, &e) == -1);
  invalid(dlfs_names(nullptr, 0, name_visitor, nullptr, &e) == -1);
  invalid(dlfs_schema_field(nullptr, 0, &field, &e) == -1);
  invalid(dlfs_stat(nullptr, &info, &e) == -1);
  invalid(dlfs_verify(nullptr, nullptr, nullptr, nullptr, &report, &e) == -1);
  invalid(dlfs_open(nullptr, "a", &e) == nullptr);
  invalid(dlfs_open_id(nullptr, 0, 0, &e) == nullptr);
  invalid(dlfs_read(nullptr, buffer, sizeof buffer, 0, &e) == -1);
  invalid(dlfs_sequence_open(nullptr, nullptr, &e) == nullptr);
  invalid(dlfs_sequence_resume(nullptr, buffer, sizeof buffer, nullptr, &e) == nullptr);
  invalid(dlfs_bread(nullptr, 1, &e) == nullptr);
  invalid(dlfs_sequence_state(nullptr, buffer, sizeof buffer, &e) == -1);
  invalid(dlfs_sequence_statistics(nullptr, &statistics, &e) == -1);
  invalid(dlfs_order_ids(nullptr, nullptr, order_visitor, nullptr, &e) == -1);
  invalid(dlfs_read_ids(nullptr, nullptr, 0, DLFS_RAISE, &e) == nullptr);
  invalid(dlfs_batch_gather(nullptr, 0, nullptr, 0, nullptr, &e) == -1);
  invalid(dlfs_writer_create(nullptr, "a: bytes", nullptr, &e) == nullptr);
  invalid(dlfs_writer_create("mem:x", nullptr, nullptr, &e) == nullptr);
  invalid(dlfs_writer_append(nullptr, "a", nullptr, 0, &e) == -1);
  invalid(dlfs_writer_append_at(nullptr, 0, "a", nullptr, 0, &e) == -1);
  invalid(dlfs_writer_append_stream_at(nullptr, 0, "a", nullptr, 0, 1, source, nullptr, &e) == -1);
  invalid(dlfs_writer_commit(nullptr, nullptr, &e) == -1);
}

TEST(CApiErrors, null_handles_have_nothing_in_them_and_can_be_given_back) {
  std::uint64_t epoch = 9, batch = 9;
  std::size_t size = 9;
  EXPECT_EQ(dlfs_sample_count(nullptr), 0u);
  EXPECT_EQ(dlfs_schema_fields(nullptr), 0u);
  EXPECT_EQ(dlfs_schema_find(nullptr, "a"), -1);
  EXPECT_EQ(dlfs_schema_text(nullptr), nullptr);
  EXPECT_EQ(dlfs_schema_attribute(nullptr, "a", &size), nullptr);
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(dlfs_file_id(nullptr), 0u);
  EXPECT_EQ(dlfs_file_size(nullptr), 0u);
  EXPECT_EQ(dlfs_sequence_batches(nullptr), 0u);
  dlfs_sequence_position(nullptr, &epoch, &batch);
  EXPECT_EQ(epoch, 0u);
  EXPECT_EQ(batch, 0u);
  EXPECT_EQ(dlfs_batch_size(nullptr), 0u);
  EXPECT_EQ(dlfs_batch_epoch(nullptr), 0u);
  EXPECT_EQ(dlfs_batch_number(nullptr), 0u);
  EXPECT_EQ(dlfs_batch_padding(nullptr), 0u);
  EXPECT_EQ(dlfs_batch_ids(nullptr), nullptr);
  EXPECT_EQ(dlfs_batch_field(nullptr, 0, 0, &size), nullptr);
  EXPECT_EQ(dlfs_writer_count(nullptr), 0u);
  dlfs_unmount(nullptr);
  dlfs_close(nullptr);
  dlfs_sequence_close(nullptr);
  dlfs_batch_release(nullptr);
  dlfs_writer_close(nullptr);
}

}  // namespace
}  // namespace dlfs
