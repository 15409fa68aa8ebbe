#include "schedulers/torque/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/api/event.h"
#include "tests/schedulers/torque/fixtures.h"

namespace scriptorium::torque {
namespace {

using namespace std::literals;
using Format = Record::Format;
using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr const char* k61 = "torque-6.1.3.h5/";
constexpr const char* k42 = "torque-4.2.10/jobs/";

Record read(std::string_view bytes) {
  auto record = read_record(bytes);
  EXPECT_TRUE(record);
  return record.value_or(Record{});
}

std::string value(const Record& record, std::string_view name, std::string_view resource = {}) {
  const std::string* found = record.find(name, resource);
  return found != nullptr ? *found : "(none)";
}

// A record with these attributes.
std::string xml(std::string_view attributes) {
  return "<?xml version=\"1.0\"?>\n<job>\n  <jobid>1.h</jobid>\n  <attributes>\n" +
         std::string(attributes) + "\n  </attributes>\n</job>\n";
}

TEST(TorqueRecordTest, EveryRecordedOneIsReadAndRegular) {
  int xml_records = 0;
  int binary_records = 0;
  for (const auto& [path, bytes] : fixtures::all_records()) {
    SCOPED_TRACE(path);
    const Record record = read(bytes);
    EXPECT_TRUE(record.regular);
    EXPECT_EQ(value(record, "Job_Owner"), "carol@pbshead.cluster.test");
    EXPECT_EQ(record.count("Job_Owner"), 1U);
    EXPECT_THAT(record.job_id,
                testing::ContainsRegex(R"(^[0-9]+(\[[0-9]*\])?\.pbshead\.cluster\.test$)"));
    ++(record.format == Format::kXml ? xml_records : binary_records);
  }
  EXPECT_EQ(xml_records, 42);
  EXPECT_EQ(binary_records, 7);
}

TEST(TorqueRecordTest, XmlTellsIdStemAndAttributes) {
  const Record record = read(fixtures::recorded(k61 + "flat/jobs/2"s, "TA"));
  EXPECT_EQ(record.format, Format::kXml);
  EXPECT_EQ(record.job_id, "2[].pbshead.cluster.test");
  EXPECT_EQ(record.file_prefix, "2.pbshead.cluster.test");
  EXPECT_EQ(value(record, "Job_Name"), "myarr");
  EXPECT_EQ(value(record, "job_array_request"), "1-3,7%2");
  EXPECT_EQ(value(record, "Resource_List", "nodect"), "1");
  EXPECT_EQ(value(record, "Resource_List"), "(none)");
  EXPECT_EQ(value(record, "ctime"), "1795225319");
}

TEST(TorqueRecordTest, BinaryTellsTheSame) {
  const Record record = read(fixtures::recorded(k42 + "2"s, "TA"));
  EXPECT_EQ(record.format, Format::kBinary);
  EXPECT_EQ(record.job_id, "2[].pbshead.cluster.test");
  EXPECT_EQ(record.file_prefix, "2.pbshead.cluster.test");
  EXPECT_EQ(value(record, "Job_Name"), "myarr");
  EXPECT_EQ(value(record, "job_array_request"), "1-3,7");
  EXPECT_EQ(value(record, "Resource_List", "nodect"), "1");
  EXPECT_EQ(record.attributes.front().name, "Job_Name");
  EXPECT_EQ(record.attributes.back().name, "submit_host");
}

TEST(TorqueRecordTest, HostileNamesStayWithinTheirElement) {
  EXPECT_EQ(value(read(fixtures::recorded(k61 + "odd/jobs/6"s, "JB")), "Job_Name"), "a<b>&c\"d");
  EXPECT_EQ(value(read(fixtures::recorded(k61 + "odd/jobs/7"s, "JB")), "Job_Name"), "../../etc/x");
  EXPECT_EQ(value(read(fixtures::recorded(k61 + "odd/jobs/9"s, "JB")), "Job_Name"), "-dash");
  EXPECT_EQ(value(read(fixtures::recorded(k61 + "odd/jobs/14"s, "JB")), "Account_Name"),
            "acc<&>\"");
}

TEST(TorqueRecordTest, AnEmptyListIsThereAndEmpty) {
  const Record record = read(fixtures::recorded(k61 + "odd/jobs/16"s, "JB"));
  EXPECT_EQ(value(record, "Variable_List"), "");
  EXPECT_EQ(value(record, "submit_args"), "");
}

TEST(TorqueRecordTest, NoShorterXmlIsARecord) {
  const std::string whole = fixtures::recorded(k61 + "flat/jobs/65"s, "JB");
  const std::size_t end = whole.rfind("</job>") + 6;
  for (std::size_t length = 0; length < end; ++length) {
    ASSERT_FALSE(read_record(std::string_view(whole).substr(0, length))) << length;
  }
  EXPECT_TRUE(read_record(std::string_view(whole).substr(0, end)));
}

TEST(TorqueRecordTest, NoShorterBinaryIsARecord) {
  const std::string whole = fixtures::recorded(k42 + "0"s, "JB");
  const std::size_t end = whole.size() - 88 + 68;  // the last header up to the number that marks it
  for (std::size_t length = 0; length < end; ++length) {
    ASSERT_FALSE(read_record(std::string_view(whole).substr(0, length))) << length;
  }
  EXPECT_TRUE(read_record(std::string_view(whole).substr(0, end)));
}

TEST(TorqueRecordTest, NoLengthOfABinaryRecordLeadsOutOfIt) {
  const std::string whole = fixtures::recorded(k42 + "0"s, "JB");
  constexpr std::size_t kFirst = 2240;
  for (const std::size_t field :
       {0U, 1U, 3U}) {  // the whole, the name, the value; a resource it has none
    for (const std::int32_t length : {-1, 0, 1, 87, 4000, 1 << 30, INT32_MAX, INT32_MIN}) {
      std::string broken = whole;
      for (std::size_t i = 0; i < 4; ++i)
        broken[kFirst + 64 + 4 * field + i] =
            static_cast<char>(static_cast<std::uint32_t>(length) >> (8 * i));
      EXPECT_FALSE(read_record(broken)) << "field " << field << " = " << length;
    }
  }
}

TEST(TorqueRecordTest, OpenPbsRecordsAreNone) {
  EXPECT_FALSE(read_record(fixtures::bytes_of("openpbs-23.06.06/mom_priv/jobs/4.pbshead.JB")));
}

TEST(TorqueRecordTest, CharacterReferencesBecomeUtf8AndOthersStay) {
  const Record record =
      read(xml("<a>&#x9D74;&#233;&#65;&lt;&amp;lt;</a><b>&#0;&#xD800;&#x110000;&nbsp;&;&</b>"));
  EXPECT_EQ(value(record, "a"),
            "\xe9\xb5\xb4\xc3\xa9"
            "A<&lt;");
  EXPECT_EQ(value(record, "b"), "&#0;&#xD800;&#x110000;&nbsp;&;&");
  EXPECT_TRUE(record.regular);
}

TEST(TorqueRecordTest, RawControlAndForeignBytesAreKept) {
  const Record record = read(xml("<Job_Name flags=\"1\">a\x1b[31m\x01\xff\nb</Job_Name>"));
  EXPECT_EQ(value(record, "Job_Name"), "a\x1b[31m\x01\xff\nb");
  EXPECT_TRUE(record.regular);
}

TEST(TorqueRecordTest, WhatPbsServerDoesNotWriteMakesItIrregular) {
  const std::string owner = "<Job_Owner flags=\"1\">carol@h</Job_Owner>";
  for (const std::string& odd :
       {"<!-- -->"s, "<!DOCTYPE job [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>"s,
        "<![CDATA[x]]>"s, "<?php ?>"s, "<a>1 < 2</a>"s, "<a></b></a>"s, "<a><b></a>"s,
        "<a x='<'y<>1</a>"s}) {
    const auto record = read_record(xml(owner + odd));
    EXPECT_TRUE(!record || !record->regular) << odd;
  }
  EXPECT_TRUE(read(xml(owner)).regular);
  EXPECT_FALSE(read(xml(owner) + "<job></job>").regular);
}

TEST(TorqueRecordTest, NoEntityIsEverFollowed) {
  const auto record = read_record(
      "<?xml "
      "version=\"1.0\"?><job><jobid>1.h</jobid><attributes><a>&x;</a></attributes></job><!ENTITY x "
      "SYSTEM "
      "\"/etc/passwd\">");
  ASSERT_TRUE(record);
  EXPECT_EQ(value(*record, "a"), "&x;");
}

TEST(TorqueRecordTest, DepthAndLengthAreBounded) {
  std::string deep = "<job>";
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_FALSE(read_record(deep));
  std::string wide = "<job><attributes>";
  for (int i = 0; i < 100'000; ++i) wide += "<a>&</b>";
  EXPECT_FALSE(read_record(wide));
}

std::vector<std::string> guess(std::string_view list, Format format = Format::kXml) {
  const std::string environment = guess_environment(list, format);
  std::vector<std::string> strings;
  for (const Variable& v : split_environment(environment)) {
    strings.push_back(std::string(v.name) +
                      (v.value.data() == nullptr ? "" : "=" + std::string(v.value)));
  }
  return strings;
}

TEST(TorqueVariablesTest, EndWhereTheNextNameBegins) {
  EXPECT_THAT(guess("PBS_O_QUEUE=batch,A=1,B="), ElementsAre("PBS_O_QUEUE=batch", "A=1", "B="));
  EXPECT_THAT(guess("A=x,y z,B=1,2=3,C=,"), ElementsAre("A=x,y z", "B=1,2=3", "C=,"));
  EXPECT_THAT(guess("BASH_FUNC_module%%=() { eval,x=1,},B=2"),
              ElementsAre("BASH_FUNC_module%%=() { eval", "x=1,}", "B=2"));
  EXPECT_THAT(guess("odd"), ElementsAre("odd"));
  EXPECT_THAT(guess(""), ElementsAre());
  EXPECT_THAT(guess("A=1\nB=2,C=3\n", Format::kBinary), ElementsAre("A=1", "B=2,C=3"));
}

TEST(TorqueVariablesTest, OfARecordedJobComeBack) {
  const std::vector<std::string> first =
      guess(value(read(fixtures::recorded(k61 + "flat/jobs/65"s, "JB")), "Variable_List"));
  EXPECT_EQ(first.size(), 9U);
  EXPECT_EQ(first.front(), "PBS_O_QUEUE=batch");
  EXPECT_THAT(first[3], StartsWith("PBS_O_PATH=/opt/torque6/bin:"));
  EXPECT_EQ(first.back(), "PBS_O_SERVER=pbshead.cluster.test");
  const std::vector<std::string> old =
      guess(value(read(fixtures::recorded(k42 + "0"s, "JB")), "Variable_List"), Format::kBinary);
  EXPECT_EQ(old.size(), 9U);
  EXPECT_EQ(old.back(), "PBS_O_SERVER=pbshead.cluster.test");
}

}  // namespace
}  // namespace scriptorium::torque
