// xlad's side of the comparison: `xlad bench` as a separate program.
#include <CLI/CLI.hpp>

#include "cli/bench/options.h"

int main(int argc, char** argv) {
  CLI::App app("Measures the times of collectives among processes of this host.");
  xlad::cli::BenchOptions options;
  app.add_option("COLLECTIVE", options.collective)->required();
  xlad::cli::AddBenchFlags(&app, &options);
  CLI11_PARSE(app, argc, argv);
  return xlad::cli::RunBench(options);
}
