#!/usr/bin/env python3
"""Makes tests/golden/chat_templates.json: templates of conversations, and what Jinja renders with them, in the
environment that Hugging Face's transformers renders chat templates in.

Usage: python3 scripts/golden/make_chat_golden.py [tests/golden/chat_templates.json]    (needs jinja2)
"""

import json
import os
import sys

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROLES = ["system", "user", "assistant"]
TALK = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "say 'four' \\ {{ five }}\nnow"},
    {"role": "assistant", "content": "four dogs\n\n{% if %} caf\u00e9 \U0001f600"},
    {"role": "user", "content": ""},
    {"role": "assistant", "content": "  ok  "},
]
# Texts before and after each role's messages, the end-of-document token, and what a prompt ends with: without the space
# where the tokenizer makes it a part of the answer's first token.
TEMPLATES = [
    {
        "name": "default",
        "tokenizer": "byte",
        "texts": [["", "\n"], ["User: ", "\n"], ["Assistant: ", "\n"]],
        "ending": "Assistant: ",
    },
    {
        "name": "default, space in the answer",
        "tokenizer": "gpt2",
        "texts": [["", "\n"], ["User: ", "\n"], ["Assistant: ", "\n"]],
        "ending": "Assistant:",
    },
    {
        "name": "special tokens",
        "tokenizer": "qwen2",
        "texts": [[f"<|im_start|>{role}\n", "<|im_end|>\n"] for role in ROLES],
        "ending": "<|im_start|>assistant\n",
    },
    {
        "name": "quotes, backslashes, braces, control characters",
        "tokenizer": "byte",
        "texts": [["'{{x}}' ", "\\n\t"], ['"\u00fc" \\', "\x01%}\r\n"], ["{% a #} \u2192\n ", "''\\\\"]],
        "ending": "{% a #} \u2192\n ",
    },
]


def quoted(text):
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return "'" + "".join(f"\\x{ord(c):02x}" if ord(c) < 32 or ord(c) == 127 else c for c in escaped) + "'"


def jinja(texts, ending, end_of_document):
    result = "{% for message in messages %}"
    for i, (role, (prefix, suffix)) in enumerate(zip(ROLES, texts)):
        result += "{% " + ("elif" if i else "if") + f" message['role'] == '{role}' %}}"
        result += "{{ " + quoted(prefix) + " + message['content'] + " + quoted(suffix) + " }}"
    result += "{% else %}{{ raise_exception('the role ' + message['role'] + ' is none of system, user and assistant') }}"
    result += "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ " + quoted(ending)
    return result + " }}{% else %}{{ " + quoted(end_of_document) + " }}{% endif %}"


def raise_exception(message):
    raise TemplateError(message)


def main():
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join("tests", "golden", "chat_templates.json")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = raise_exception
    cases = []
    for case in TEMPLATES:
        end_of_document = "<|endoftext|>"
        text = jinja(case["texts"], case["ending"], end_of_document)
        template = environment.from_string(text)
        cases.append(
            {
                **case,
                "jinja": text,
                "rendered": template.render(messages=TALK, add_generation_prompt=False),
                "prompt": template.render(messages=TALK[:2], add_generation_prompt=True),
            }
        )
    try:
        environment.from_string(cases[0]["jinja"]).render(messages=[{"role": "tool", "content": ""}])
        sys.exit("a role that the template does not have was rendered")
    except TemplateError as error:
        assert "the role tool is none of" in str(error)
    with open(target, "w", encoding="utf-8") as file:
        json.dump({"messages": TALK, "templates": cases}, file, ensure_ascii=False, indent=1)
        file.write("\n")


main()
