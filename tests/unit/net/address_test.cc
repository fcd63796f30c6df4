#include "net/address.h"

#include <gtest/gtest.h>

namespace dlfs::net {
namespace {

TEST(Endpoint, ReadsWhatPeopleWrite) {
  const struct {
    const char* text;
    Endpoint endpoint;
  } cases[] = {
      {"10.1.0.7:4420", {"10.1.0.7", 4420}},
      {"10.1.0.7", {"10.1.0.7", 8009}},
      {"[::1]:1", {"::1", 1}},
      {"[fe80::1%eth0]", {"fe80::1%eth0", 8009}},
      {"stor1.example:65535", {"stor1.example", 65535}},
      {"stor_1:0", {"stor_1", 0}},
  };
  for (const auto& one : cases) {
    const auto parsed = parse_endpoint(one.text, 8009);
    ASSERT_TRUE(parsed.ok()) << one.text << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, one.endpoint) << one.text;
    EXPECT_EQ(*parse_endpoint(parsed->text(), 1), one.endpoint) << "what is written is read back";
  }
}

TEST(Endpoint, RefusesWhatIsNone) {
  for (const char* text : {"", ":4420", "host:", "host:x", "host:65536", "host:-1", "host:44 20", "[::1", "[::1]4420",
                           "[host]:1", "::1", "a b:1", "h/x:1", "host:1:2", "host\n:1"}) {
    const auto parsed = parse_endpoint(text, 4420);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument) << text;
    EXPECT_GT(parsed.error().message.size(), 20u) << text;
  }
  EXPECT_NE(parse_endpoint("fe80::1", 4420).error().message.find("[fe80::1]:4420"), std::string::npos);
  EXPECT_FALSE(parse_endpoint(std::string(254, 'a'), 1).ok());
}

TEST(Address, IsANumberAndAPort) {
  const Address four = *Address::from_number("127.0.0.1", 4420);
  EXPECT_EQ(four.text(), "127.0.0.1:4420");
  EXPECT_TRUE(four.loopback());
  const Address six = *Address::from_number("::1", 80);
  EXPECT_EQ(six.text(), "[::1]:80");
  EXPECT_EQ(six.host(), "::1");
  EXPECT_TRUE(six.loopback());
  EXPECT_TRUE(Address::from_number("::ffff:127.0.0.1", 1)->loopback());
  EXPECT_FALSE(Address::from_number("10.0.0.1", 1)->loopback());
  EXPECT_FALSE(Address::from_number("0.0.0.0", 1)->loopback());
  EXPECT_FALSE(four == six);
  EXPECT_TRUE(four == *Address::from_number("127.0.0.1", 4420));
  EXPECT_FALSE(four == *Address::from_number("127.0.0.1", 4421));
  EXPECT_FALSE(Address::from_number("localhost", 1).ok());
}

}  // namespace
}  // namespace dlfs::net
