#include "interop/checkpoint_tokenizer.h"

#include "checkpoint/files.h"
#include "data/kept_tokenizer.h"
#include "system/durable_file.h"
#include "system/notes.h"

namespace megatron {

std::unique_ptr<Tokenizer> tokenizer_beside(const CheckpointReader& source) {
  const nlohmann::json& facts = source.state().facts;
  try {
    const auto name = facts.at("tokenizer").get<std::string>();
    return tokenizer_of_checkpoint(source.path(), name, facts.at("tokenizer_hash").get<std::uint64_t>(), "", "");
  } catch (const nlohmann::json::exception&) {  // a tool does not know it
    return nullptr;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::filesystem) throw;
    if (error.kind() == ErrorKind::checkpoint) print_warning(error.what());
    return nullptr;
  }
}

void write_tokenizer_files(const Tokenizer& tokenizer, const std::string& folder) {
  for (const TokenizerFile& file : tokenizer.files()) create_file_durably(folder + "/" + file.name, file.contents);
  sync_path(folder);
}

void carry_tokenizer(const CheckpointReader& source, const std::string& folder) {
  if (const std::unique_ptr<Tokenizer> tokenizer = tokenizer_beside(source)) write_tokenizer_files(*tokenizer, folder);
}

}  // namespace megatron
