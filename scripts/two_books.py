#!/usr/bin/env python3
"""Makes the files of an example of docs/fine_tuning.md: which of two books are these words from?

Usage: python3 scripts/two_books.py SHAKESPEARE WIKITEXT FOLDER     (the texts that scripts/fetch_text.sh writes)

FOLDER/books.jsonl: nine tenths of the speeches and 72 % of the articles, which is about as much text, to train a
vocabulary and a BERT on. FOLDER/train.jsonl and FOLDER/validation.jsonl: 4 to 7 words in a row of the rest, none of
them with a capital letter or a sign, with the name of their book: 200 of each book, and 500 of each. The same texts
make the same files.
"""

import json
import os
import random
import re
import sys

TRAINING, VALIDATION = 200, 500  # phrases of each book
SHORTEST, LONGEST = 4, 7  # words of a phrase


def speeches(path):
    """Documents of 40 speeches of Shakespeare."""
    with open(path, encoding="utf-8") as file:
        parts = file.read().strip().split("\n\n")
    return ["\n\n".join(parts[i : i + 40]) for i in range(0, len(parts), 40)]


def articles(path):
    """The articles of a file of WikiText, each from its title on."""
    with open(path, encoding="utf-8") as file:
        parts = re.split(r"(?m)^(?= = [^=].*[^=] = $)", file.read())
    return [part for part in parts if part.strip()]


def phrases(documents, generator):
    found = set()
    for document in documents:
        for run in re.findall(r"(?<!\S)[a-z]+(?:\s[a-z]+)+(?!\S)", document):
            words = run.split()
            while len(words) >= SHORTEST:
                length = generator.randint(SHORTEST, LONGEST)
                found.add(" ".join(words[:length]))
                words = words[length:]
    found = sorted(found)
    generator.shuffle(found)
    return found


def write(folder, name, records, generator):
    generator.shuffle(records)
    with open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: two_books.py SHAKESPEARE WIKITEXT FOLDER")
    shakespeare, wikitext, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    generator = random.Random(7)
    books, labelled = [], {}
    for label, documents, share in (("shakespeare", speeches(shakespeare), 0.9), ("wikipedia", articles(wikitext), 0.72)):
        generator.shuffle(documents)
        count = round(share * len(documents))
        books += documents[:count]
        labelled[label] = phrases(documents[count:], generator)
    write(folder, "books.jsonl", [{"text": document} for document in books], generator)
    for name, first, end in (("train.jsonl", 0, TRAINING), ("validation.jsonl", TRAINING, TRAINING + VALIDATION)):
        records = [{"text_a": text, "label": label} for label, found in labelled.items() for text in found[first:end]]
        write(folder, name, records, generator)


if __name__ == "__main__":
    main()
