// Flags of `xlad run` and `xlad submit` that say where the state and the data of a job are.
#pragma once

#include <CLI/CLI.hpp>

#include "client/job_directory.h"
#include "storage/uri.h"

namespace xlad::cli {

inline void AddTensorFlags(CLI::App* app, client::TensorUris* uris) {
  const auto check = [](const std::string& text) { return std::string(storage::ParseUri(text).status().message()); };
  const CLI::Validator is_uri(check, "URI");
  app->add_option("--state-uri", uris->state,
                  "initial state: a safetensors file, a folder of them, or a checkpoint, which all workers can read, "
                  "in the form file:/PATH; default: as in the job directory")
      ->check(is_uri);
  app->add_option("--data-uri", uris->data, "data set, in the form of --state-uri")->check(is_uri);
}

}  // namespace xlad::cli
