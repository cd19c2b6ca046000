// Environments of launchers, each with its source, and the launch that is detected in each of them. A source
// that says "recorded" means that the variables are those of a process that this version of the launcher started. The
// other environments are taken from documentation or from programs that read the variables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collectives/exec/bootstrap/cluster_place.h"
#include "collectives/exec/bootstrap/host_list.h"
#include "collectives/exec/bootstrap/launcher.h"

namespace xlad::collectives {
namespace {

using ::testing::ElementsAre;
using Variables = std::map<std::string, std::string>;

struct Environment {
  const char* what;
  const char* source;
  Variables variables;
  const char* expected;  // The output of Text; for errors, a part of the message.
};

const std::vector<Environment>& Environments() {
  static const auto* const environments = new std::vector<Environment>{
#include "collectives/exec/bootstrap/testdata/environments.inc"
  };
  return *environments;
}

GetVariable Reader(const Variables& variables) {
  return [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

std::string Text(const absl::StatusOr<std::optional<Launch>>& launch) {
  if (!launch.ok()) return absl::StrCat("refused: ", launch.status().message());
  const auto place = PlaceInCluster(*launch, "", "");
  const std::string at = place.ok() ? absl::StrCat(" at ", place->coordinator) : " no coordinator";
  if (!launch->has_value()) return "none" + at;
  const Launch& l = **launch;
  const auto local = [](const std::optional<int>& number) { return number ? absl::StrCat(*number) : "?"; };
  return absl::StrCat(l.launcher, ": ", l.rank, "/", l.ranks, " local ", local(l.local_rank), "/", local(l.local_ranks),
                      at, l.name.empty() ? "" : " as ", l.name);
}

TEST(Environments, EachIsDetectedOrRefusedWithTheReason) {
  EXPECT_GE(Environments().size(), 20u);
  for (const Environment& environment : Environments()) {
    EXPECT_NE(std::string(environment.source), "") << environment.what;
    const std::string text = Text(DetectLaunch(Reader(environment.variables)));
    if (absl::StartsWith(environment.expected, "refused: ")) {
      EXPECT_TRUE(absl::StartsWith(text, "refused: ") && absl::StrContains(text, environment.expected + 9))
          << environment.what << ": " << text;
    } else {
      EXPECT_EQ(text, environment.expected) << environment.what;
    }
  }
}

// The host of the coordinator is never guessed: it is known, or the error names the flag and the variable to set.
TEST(Environments, AnUnknownCoordinatorIsAnErrorThatSaysWhatToSet) {
  int unknown = 0;
  for (const Environment& environment : Environments()) {
    const auto launch = DetectLaunch(Reader(environment.variables));
    if (!launch.ok() || !launch->has_value()) continue;
    EXPECT_EQ(PlaceInCluster(*launch, "c:1", "")->coordinator, "c:1") << environment.what;
    const auto place = PlaceInCluster(*launch, "", "");
    if (place.ok()) {
      const bool all_are_here = (*launch)->local_ranks.value_or(1) >= (*launch)->ranks;
      EXPECT_EQ(place->coordinator == "127.0.0.1:7411", all_are_here) << environment.what;
      continue;
    }
    ++unknown;
    const std::string message(place.status().message());
    for (const std::string& part : {(*launch)->launcher, std::string("--coordinator HOST:PORT"),
                                    std::string("XLAD_COORDINATOR"), absl::StrCat(" of ", (*launch)->ranks)}) {
      EXPECT_TRUE(absl::StrContains(message, part)) << environment.what << ": " << message;
    }
    const bool counts = !absl::StrContains(message, "does not say how many ranks are on this host");
    EXPECT_EQ(counts, (*launch)->local_ranks.has_value()) << environment.what << ": " << message;
  }
  EXPECT_GE(unknown, 8);
}

// Variables that DetectLaunch does not read do not change what is detected.
TEST(Environments, OtherVariablesChangeNothing) {
  for (const Environment& environment : Environments()) {
    Variables more = environment.variables;
    more.insert({{"PATH", "/bin"}, {"RANKING", "7"}, {"OMPI_MCA_ess", "x"}, {"SLURM_CPUS_ON_NODE", "64"}});
    EXPECT_EQ(Text(DetectLaunch(Reader(more))), Text(DetectLaunch(Reader(environment.variables)))) << environment.what;
  }
}

// XLAD_RANK and XLAD_RANKS override all other variables, even in ambiguous environments.
TEST(Environments, XladRankOverridesAllOtherVariables) {
  for (const Environment& environment : Environments()) {
    Variables by_hand = environment.variables;
    by_hand["XLAD_RANK"] = "5";
    by_hand["XLAD_RANKS"] = "7";
    const auto launch = DetectLaunch(Reader(by_hand));
    ASSERT_TRUE(launch.ok() && launch->has_value()) << environment.what;
    EXPECT_EQ((*launch)->rank, 5) << environment.what;
    EXPECT_EQ((*launch)->ranks, 7) << environment.what;
  }
}

// A rank or a number of ranks that is not a valid number is never accepted.
TEST(Environments, BrokenNumbersAreNeverAccepted) {
  for (const char* broken : {"", "x", "-1", "1e3", "99999999999999999999", "4294967296", " "}) {
    for (const auto& [rank, ranks] :
         std::vector<std::pair<const char*, const char*>>{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                          {"PMI_RANK", "PMI_SIZE"},
                                                          {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                                          {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                                          {"JOB_COMPLETION_INDEX", "XLAD_RANKS"}}) {
      const Variables bad_rank = {{rank, broken}, {ranks, "4"}};
      const auto launch = DetectLaunch(Reader(bad_rank));
      EXPECT_TRUE(!launch.ok() || !launch->has_value()) << rank << "=" << broken;
      const Variables bad_ranks = {{rank, "1"}, {ranks, broken}};
      EXPECT_FALSE(DetectLaunch(Reader(bad_ranks)).ok()) << ranks << "=" << broken;
    }
  }
}

TEST(ClusterPlace, ValuesOfTheUserAreKept) {
  const std::optional<Launch> launch = Launch{.rank = 1, .ranks = 4, .local_ranks = 2, .first_host = "n1", .name = "w"};
  EXPECT_EQ(*PlaceInCluster(launch, "c:1", "me"), (ClusterPlace{"c:1", "me"}));
  EXPECT_EQ(*PlaceInCluster(launch, "", ""), (ClusterPlace{"n1:7411", "w"}));
  EXPECT_EQ(*PlaceInCluster(std::nullopt, "", ""), (ClusterPlace{"127.0.0.1:7411", ""}));
  const std::optional<Launch> six = Launch{.rank = 1, .ranks = 4, .local_ranks = 2, .first_host = "fd00::1"};
  EXPECT_EQ(PlaceInCluster(six, "", "")->coordinator, "[fd00::1]:7411");
  const std::optional<Launch> spread = Launch{.rank = 1, .ranks = 4, .local_ranks = 2, .launcher = "MPICH"};
  EXPECT_TRUE(absl::IsInvalidArgument(PlaceInCluster(spread, "", "").status()));
}

TEST(ClusterPlace, PrintsJson) {
  EXPECT_EQ(PlaceToJson(std::nullopt, {"h:1", ""}), R"({"launcher": null, "coordinator": "h:1", "worker": ""})");
  const Launch launch = {.rank = 1, .ranks = 2, .local_ranks = 2, .launcher = "a \"b\"", .key = "k"};
  EXPECT_EQ(PlaceToJson(launch, {"h:1", "w"}),
            R"({"launcher": "a \"b\"", "rank": 1, "ranks": 2, "local_rank": null, "local_ranks": 2, )"
            R"("first_host": "", "coordinator": "h:1", "worker": "w"})");
}

TEST(HostList, ExpandsRangesAndRepetitions) {
  EXPECT_THAT(*ExpandHostList("n[1-3,07]-ib,login"), ElementsAre("n1-ib", "n2-ib", "n3-ib", "n07-ib", "login"));
  EXPECT_THAT(*ExpandHostList("r[1-2]c[0-1]"), ElementsAre("r1c0", "r1c1", "r2c0", "r2c1"));
  EXPECT_THAT(*ExpandHostList("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(*ExpandHostList("[1-2][3]x"), ElementsAre("13x", "23x"));
  EXPECT_THAT(*ExpandHostList("one"), ElementsAre("one"));
  EXPECT_THAT(*ExpandCounts("4(x2),3"), ElementsAre(4, 4, 3));
  EXPECT_THAT(*ExpandCounts("16"), ElementsAre(16));
  std::string brackets = "n";
  for (int i = 0; i < 51; ++i) brackets += "[1-1000000]";
  for (const std::string& bad :
       std::vector<std::string>{"", ",", "n[", "n]", "n]1[2]", "n[1]]", "n[3-1]", "n[a]", "n[1-2-3]", "n[]",
                                "n[1-9999999]", "n[0-999999][0-9]", brackets}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ExpandHostList(bad).status())) << bad;
  }
  for (const char* bad : {"", "x", "4(x", "4(x2", "4(2)", "(x2)", "-1", "1(x9999999)"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ExpandCounts(bad).status())) << bad;
  }
}

}  // namespace
}  // namespace xlad::collectives
