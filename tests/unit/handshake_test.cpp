#include "base/handshake.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/secret.hpp"

namespace tamaki {
namespace {

using Bytes = std::vector<std::byte>;

/// Takes everything that `from` has to say.
Bytes take(Handshake& from) {
  Bytes out(from.outgoing().begin(), from.outgoing().end());
  from.sent(out.size());
  return out;
}

/// Gives `bytes` to `to`, `step` at a time; stops at the first refusal. What does not fit is not read.
Status give(Handshake& to, const Bytes& bytes, std::size_t step = 1000) {
  for (std::size_t at = 0; at < bytes.size();) {
    const auto room = to.room();
    const std::size_t n = std::min({step, room.size(), bytes.size() - at});
    if (n == 0) break;
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), n, room.begin());
    if (Status status = to.received(n); !status) return status;
    at += n;
  }
  return {};
}

TEST(HandshakeProof, EndsWithBothConvincedHoweverTheBytesArrive) {
  const Secret secret = random_secret();
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    Handshake dialer(Handshake::Role::dialled, secret), answerer(Handshake::Role::accepted, secret);
    ASSERT_TRUE(give(answerer, take(dialer), step));
    EXPECT_FALSE(answerer.done());
    ASSERT_TRUE(give(dialer, take(answerer), step));
    ASSERT_TRUE(give(answerer, take(dialer), step));
    EXPECT_TRUE(dialer.done());
    EXPECT_TRUE(answerer.done());
  }
}

TEST(HandshakeProof, AnotherSecretGetsNoAnswer) {
  Handshake dialer(Handshake::Role::dialled, random_secret()), answerer(Handshake::Role::accepted, random_secret());
  const Status status = give(answerer, take(dialer));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::invalid_usage);
  EXPECT_TRUE(answerer.outgoing().empty());
  EXPECT_FALSE(answerer.done());
}

TEST(HandshakeProof, EveryFlippedBitOfEveryMessageIsRefused) {
  const Secret secret = random_secret();
  for (int message = 0; message < 3; ++message) {
    std::size_t length = 1;
    for (std::size_t bit = 0; bit < length * 8; ++bit) {
      Handshake dialer(Handshake::Role::dialled, secret), answerer(Handshake::Role::accepted, secret);
      Status status;
      for (int i = 0; i <= message; ++i) {
        Bytes bytes = take(i % 2 == 0 ? dialer : answerer);
        length = bytes.size();
        if (i == message) bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        status = give(i % 2 == 0 ? answerer : dialer, bytes);
        ASSERT_TRUE(status || i == message);
      }
      ASSERT_FALSE(status) << "message " << message << " bit " << bit;
      EXPECT_EQ(status.error().code, Code::invalid_usage);
    }
  }
}

TEST(HandshakeProof, RecordedMessagesDoNotOpenASecondConnection) {
  const Secret secret = random_secret();
  Handshake dialer(Handshake::Role::dialled, secret), answerer(Handshake::Role::accepted, secret);
  const Bytes first = take(dialer);
  ASSERT_TRUE(give(answerer, first));
  ASSERT_TRUE(give(dialer, take(answerer)));
  const Bytes third = take(dialer);
  ASSERT_TRUE(give(answerer, third));
  ASSERT_TRUE(answerer.done());

  Handshake victim(Handshake::Role::accepted, secret);
  ASSERT_TRUE(give(victim, first));
  static_cast<void>(take(victim));
  EXPECT_FALSE(give(victim, third));
  EXPECT_FALSE(victim.done());
}

TEST(HandshakeProof, AnEndCannotBeFedItsOwnMessages) {
  const Secret secret = random_secret();
  Handshake dialer(Handshake::Role::dialled, secret);
  const Bytes first = take(dialer);
  EXPECT_FALSE(give(dialer, Bytes(first.begin() + 8, first.end())));  // without the magic: of the right length
  EXPECT_FALSE(dialer.done());
}

TEST(HandshakeProof, TakesNotAByteBeyondItsOwn) {
  const Secret secret = random_secret();
  Handshake dialer(Handshake::Role::dialled, secret), answerer(Handshake::Role::accepted, secret);
  ASSERT_TRUE(give(answerer, take(dialer)));
  EXPECT_TRUE(answerer.outgoing().size() == 64 && answerer.room().size() == 32);
  ASSERT_TRUE(give(dialer, take(answerer)));
  EXPECT_TRUE(dialer.room().empty());
  ASSERT_TRUE(give(answerer, take(dialer)));
  EXPECT_TRUE(answerer.room().empty());
}

TEST(Secrets, DependOnTextAndLabel) {
  EXPECT_EQ(derive_secret("a", "b"), derive_secret("a", "b"));
  EXPECT_NE(derive_secret("a", "b"), derive_secret("b", "a"));
  EXPECT_NE(derive_secret("ab", ""), derive_secret("a", "b"));
  EXPECT_NE(random_secret(), random_secret());
  EXPECT_NE(random_number(), random_number());
  EXPECT_NE(digest_of("x"), digest_of("y"));
}

TEST(Secrets, GoToHexAndBack) {
  const Secret secret = random_secret();
  Secret back;
  EXPECT_TRUE(from_hex(to_hex(secret), back));
  EXPECT_EQ(back, secret);
  EXPECT_FALSE(from_hex(to_hex(secret).substr(1), back));
  EXPECT_FALSE(from_hex(std::string(64, 'g'), back));
}

}  // namespace
}  // namespace tamaki
