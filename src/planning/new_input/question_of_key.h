// For the files that list the wizard's questions: questions about keys of the schema, whose texts, kinds, defaults and
// checks are the schema's, and the lists of other files.
#pragma once

#include <string>
#include <vector>

#include "planning/new_input/questions.h"

namespace megatron {

bool has_own_sizes(const Draft& draft);  ///< its model is no preset

/// A key's question by default: always asked, with the value that the draft has already.
Question about(const std::string& section, const std::string& name);

template <class Asked>
Question if_asked(Question question, const Asked& asked) {
  question.asked = asked;
  return question;
}

template <class Propose>
Question with_default(Question question, const Propose& propose) {
  question.propose = propose;
  return question;
}

/// The part of questions.cpp's list about the model and its data. `name`: the input file's, without folder and ending.
void add_model_questions(std::vector<Question>& all);
void add_data_questions(const std::string& name, std::vector<Question>& all);

}  // namespace megatron
