#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/query/parse.h"
#include "tests/core/query/query_shape.h"

// Trees as the parser makes them, at random, become text and the same trees again.
namespace scriptorium::query {
namespace {

using Kind = Query::Kind;
constexpr Timestamp kRoundTripNow{1'795'275'000 * kSecond};

class RandomTree {
 public:
  explicit RandomTree(unsigned seed) : random_(seed) {}

  Query tree(int depth, Kind above = Kind::kAll) {
    const int kind = depth <= 0 ? 3 : below(8);
    if (kind == 0 && above != Kind::kAnd) return several(Kind::kAnd, depth);
    if (kind == 1 && above != Kind::kOr) return several(Kind::kOr, depth);
    if (kind == 2) {
      Query query;
      query.kind = Kind::kNot;
      query.children.push_back(tree(depth - 1, Kind::kNot));
      return query;
    }
    return leaf();
  }

 private:
  int below(int limit) { return std::uniform_int_distribution<>(0, limit - 1)(random_); }
  bool coin() { return below(2) == 0; }

  Query several(Kind kind, int depth) {
    Query query;
    query.kind = kind;
    for (int i = 2 + below(2); i > 0; --i) query.children.push_back(tree(depth - 1, kind));
    return query;
  }

  std::string text(bool blanks) {
    static const std::vector<std::string> kParts{
        "a",        "run_01", "OR", "AND", "NOT",  "-",    "--",  "/", "*", "\"",
        "\\",       "(",      ")",  ":",   "..",   ">",    "<",   "=", "%", "user",
        "\xC3\xA9", "\xFF",   "\n", "x.y", "env.", "mem:", "16G", "'"};
    std::string made;
    for (int i = 1 + below(4); i > 0; --i) {
      made += kParts.at(static_cast<std::size_t>(below(static_cast<int>(kParts.size()))));
      if (blanks && i > 1 && below(3) == 0) made += ' ';
    }
    const bool only_blanks = made.find_first_not_of(" \n") == std::string::npos;
    return only_blanks ? "b" : made;
  }

  Query leaf() {
    Query query;
    switch (below(7)) {
      case 0: return query;  // everything
      case 1:
      case 2:
        query.kind = Kind::kText;
        query.part = coin() ? JobPart::kScript : JobPart::kEnvironment;
        query.text = text(true);
        query.prefix = is_word_byte(query.text.back()) && coin();
        return query;
      case 3: {
        static const std::vector<std::string> kExpressions{
            "a/b", "\\d+", "[/]", "x\\\\", "a b", "^#.*$", "\\.\\*", "(a|b)+", "\"("};
        query.kind = Kind::kExpression;
        query.part = coin() ? JobPart::kScript : JobPart::kEnvironment;
        query.text = kExpressions.at(
            static_cast<std::size_t>(below(static_cast<int>(kExpressions.size()) - 1)));
        query.ignore_case = coin();
        return query;
      }
      case 4:
        query.kind = Kind::kVariable;
        query.name = coin() ? "OMP_NUM_THREADS" : "SLURM_*";
        query.text = below(5) == 0 ? "" : text(true);
        return query;
      case 5: return range();
      default: break;
    }
    constexpr std::array kFields{QueryField::kUser, QueryField::kName,      QueryField::kModule,
                                 QueryField::kJob,  QueryField::kDirective, QueryField::kWorkDir,
                                 QueryField::kState};
    query.kind = Kind::kField;
    query.field = kFields.at(static_cast<std::size_t>(below(kFields.size())));
    query.text = text(true);
    return query;
  }

  Query range() {
    constexpr std::array kFields{QueryField::kMemory,  QueryField::kCpu,  QueryField::kGpu,
                                 QueryField::kElapsed, QueryField::kExit, QueryField::kSubmitted,
                                 QueryField::kEnded};
    Query query;
    query.kind = Kind::kRange;
    query.field = kFields.at(static_cast<std::size_t>(below(kFields.size())));
    const bool time = query.field == QueryField::kSubmitted || query.field == QueryField::kEnded;
    const auto number = [&]() -> std::int64_t {
      if (!time) return below(3) == 0 ? 9007199254740993 : below(100'000);
      const std::int64_t second = (1'700'000'000 + below(100'000'000)) * kSecond;
      const std::array<std::int64_t, 4> within{0, kSecond - 1, 123'456'789, 1};
      return second + within.at(static_cast<std::size_t>(below(4)));
    };
    if (coin()) query.from = number();
    if (coin()) query.to = number();
    if (query.from && query.to && *query.from > *query.to) std::swap(query.from, query.to);
    const bool may_be_percent = query.field == QueryField::kMemory ||
                                query.field == QueryField::kCpu || query.field == QueryField::kGpu;
    query.percent = may_be_percent && (query.from || query.to) && coin();
    return query;
  }

  std::mt19937 random_;
};

TEST(QueryToTextTest, GivesTextThatParsesToTheSameTree) {
  RandomTree random(18);
  for (int i = 0; i < 20'000; ++i) {
    const Query tree = random.tree(4);
    const std::string text = to_text(tree);
    if (text.size() > kMostQueryBytes) continue;
    const Parsed again = parse(text, kRoundTripNow);
    if (again.error && again.error->problem.starts_with("too")) continue;
    ASSERT_FALSE(again.error) << text << "\n" << error_text(text, *again.error, "q");
    ASSERT_EQ(shape(again.query), shape(tree)) << text;
    ASSERT_EQ(to_text(again.query), text);
  }
}

TEST(QueryToTextTest, StaysReadable) {
  for (const char* text :
       {"gromacs gpu", "\"mpirun -np 16\" OR (a -b)", "user:alice module:GROMACS*", "-(a OR b)",
        "/x\\/y/i", "env:conda env.OMP_NUM_THREADS:8", "run_0*", "mem:1024..",
        "submitted:2026-11-01T00:00:00Z..2026-11-30T23:59:59Z", "cpu:..29%", "exit:0", "ended:*",
        "NOT -a"}) {
    const Parsed result = parse(text, kRoundTripNow);
    ASSERT_FALSE(result.error) << text;
    EXPECT_EQ(to_text(result.query), text);
  }
}

// Bytes at random never do harm, and what parses survives the way through text.
TEST(QueryParseTest, TakesAnyBytes) {
  std::mt19937 random(4711);
  const std::string alphabet =
      "abcOR ANDNOT()\"\"\\//**--::..<>=%us er:mem:env.X:since:exit:7d1G2026-11\t\n\xC3\xA9\xFF";
  for (int i = 0; i < 50'000; ++i) {
    std::string text;
    for (auto left = random() % 40; left > 0; --left) text += alphabet[random() % alphabet.size()];
    const Parsed result = parse(text, kRoundTripNow);
    if (result.error) {
      ASSERT_LE(result.error->position, text.size()) << text;
      ASSERT_GE(result.error->length, 1u) << text;
      ASSERT_FALSE(result.error->problem.empty()) << text;
      ASSERT_FALSE(error_text(text, *result.error, "q").empty());
    } else {
      const std::string again = to_text(result.query);
      const Parsed second = parse(again, kRoundTripNow);
      ASSERT_FALSE(second.error) << text << "\n" << again;
      ASSERT_EQ(shape(second.query), shape(result.query)) << text << "\n" << again;
    }
  }
}

}  // namespace
}  // namespace scriptorium::query
