#!/usr/bin/env python3
"""Makes a corpus of web pages with planted faults, and judges what megatron_clean makes of it.

    dirty_corpus.py make FOLDER --megabytes 1000     pages, tasks, a list of domains and a recipe, in FOLDER
    (megatron_clean run FOLDER/recipe.toml)
    dirty_corpus.py judge FOLDER                     precision and recall of each step, against what was planted

Each page has the members id, kind (what was planted; "clean": nothing) and, where they matter, the hash of the text that
must come out, and the similarity to the page that it is an edited copy of. The judge knows pages by these members, which
cleaning keeps. It ends with 1 where a clean page is missing, a planted one is left that its rule is certain of, a text
came out wrong, or near duplicates are found less or more often than the bands' probabilities say (four deviations).
"""
import argparse
import bz2
import collections
import gzip
import hashlib
import json
import math
import os
import random
import re
import sys

WORDS = """time year people way day man thing woman life child world school state family student group country problem hand
part place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour game
line end member law car city community name president team minute idea body information back parent face level office door
health person art war history party result change morning reason research girl guy moment air teacher force education foot
boy age policy music market sense nation plan college interest death experience effect use class control field development
role effort rate heart drug show leader light voice wife police mind price decision son view relationship town road arm
difference value building action season society tax director position player record paper space ground form event matter
center couple site project activity star table court oil situation cost industry figure street image phone data picture
practice piece land product doctor wall patient worker news test movie north love step baby computer type attention film
tree source organization hair window culture chance brother energy period course summer plant opportunity term letter
condition choice rule daughter south husband floor campaign material population call economy hospital church risk fire
future bank interview garden river mountain island bridge village forest winter bird horse ship engine iron stone glass
paint song dance bread coffee sugar salt apple orange silver copper cotton paper ladder candle basket pocket button needle
thunder valley meadow harbor lantern orchard pebble ribbon saddle temple tunnel velvet wagon willow anchor barrel""".split()
ADJECTIVES = """good new first last long great little own other old right big high different small large next early young
important few public bad same able quiet bright narrow gentle distant heavy hollow patient sudden modern ancient common rare
simple clever humble careful crowded empty frozen golden honest lively lonely polite proud rapid rough silent smooth steady
strange tender tired warm wild wooden foreign local royal""".split()
VERBS = """found made took gave kept held left brought followed showed heard called moved turned opened carried reached
watched built lost changed learned asked needed helped crossed painted counted gathered measured mended noticed offered
promised recalled repaired sheltered studied traded welcomed""".split()
LINKS = "and but while because although before after when until so".split()
MARKED = ["the café", "a naïve answer", "the fiancée", "a piñata", "the façade", "Zoë’s", "his “plan”", "a crème brûlée", "Málaga"]
FOREIGN = {
    "fr": "le la les des une dans est pour que qui avec sur nous vous être avait mais où comme tout plus maison jour femme homme "
          "enfant ville pays année monde toujours jamais très bien aussi leurs cette pendant lorsque étaient beaucoup",
    "de": "der die das und ist nicht ein eine mit für auf dem den auch sich werden haben nach wird bei über Jahr Haus Frau Mann "
          "Kind Stadt Land Welt immer niemals sehr gut zwischen während ihre diese wurde können müssen",
    "es": "el la los las una en es para que con por sobre nosotros ustedes ser había pero donde como todo más casa día mujer "
          "hombre niño ciudad país año mundo siempre nunca muy bien también entre mientras estaban mucho",
    "ru": "и в не на что он как это по но они мы все она так его за был для дом день женщина человек город страна год мир всегда "
          "никогда очень хорошо также между потом были можно должен ребенок",
}  # fmt: skip
CHECKED = 0.7  # similarity from which megatron_clean takes pairs for duplicates
BANDS, ROWS = 16, 8

# What is planted: share of the pages, the step that must remove it (None: it stays).
KINDS = {
    "clean": (0.66, None),
    "mojibake": (0.05, None),
    "domain": (0.02, "urls"),
    "extension": (0.02, "urls"),
    "malformed": (0.01, "urls"),
    "same url": (0.02, "urls"),
    "foreign": (0.05, "text"),
    "short": (0.02, "text"),
    "repeated lines": (0.02, "text"),
    "symbols": (0.02, "text"),
    "exact": (0.04, "duplicates"),
    "near": (0.05, "duplicates"),
    "contaminated": (0.02, "decontaminate"),
}


def sentence(rng):
    def thing():
        return f"the {rng.choice(ADJECTIVES)} {rng.choice(WORDS)}" if rng.random() < 0.6 else f"a {rng.choice(WORDS)}"

    text = f"{thing()} of {thing()} {rng.choice(VERBS)} {thing()}"
    if rng.random() < 0.6:
        text += f", {rng.choice(LINKS)} {thing()} {rng.choice(VERBS)} {rng.choice(WORDS)} with {thing()}"
    return text[0].upper() + text[1:] + "."


def prose(rng, sentences):
    return " ".join(sentence(rng) for _ in range(sentences))


def shingles(text):
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


def similarity(a, b):
    one, other = shingles(a), shingles(b)
    return len(one & other) / len(one | other)


def edited(rng, text):
    """A copy in which some sentences are others: of a similarity of about 0.5 to 0.95."""
    sentences = re.split(r"(?<=\.) ", text)
    for i in rng.sample(range(len(sentences)), max(1, int(len(sentences) * rng.uniform(0.02, 0.3)))):
        sentences[i] = sentence(rng)
    return " ".join(sentences)


def damaged(text):
    """Bytes of UTF-8 read as Windows-1252, as browsers do it."""
    return "".join(bytes([b]).decode("cp1252") if b not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else chr(b) for b in text.encode())


def straight(text):
    return text.replace("’", "'").replace("“", '"').replace("”", '"')


def hash_of(text):
    return hashlib.sha1(text.encode()).hexdigest()


class Pages:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.count = 0
        self.recent = collections.deque(maxlen=4000)  # clean pages, of which copies are made
        self.tasks = [prose(self.rng, 8) for _ in range(200)]

    def url(self):
        return f"https://site{self.rng.randrange(10**6)}.example/{self.rng.choice(WORDS)}/{self.count}"

    def page(self):
        rng = self.rng
        kind = rng.choices(list(KINDS), [share for share, _ in KINDS.values()])[0]
        if not self.recent and kind in ("exact", "near", "same url"):
            kind = "clean"
        page = {"id": self.count, "kind": kind, "url": self.url(), "text": prose(rng, rng.randrange(10, 40))}
        self.count += 1
        if kind == "clean":
            self.recent.append(page)
            page["hash"] = hash_of(page["text"])
        elif kind == "mojibake":
            marked = " ".join(f"{sentence(rng)[:-1]}, said {rng.choice(MARKED)}." for _ in range(rng.randrange(12, 30)))
            page.update(text=damaged(marked), hash=hash_of(straight(marked)))
        elif kind == "domain":
            page["url"] = f"https://www.forbidden{rng.randrange(50)}.com/{self.count}"
        elif kind == "extension":
            page["url"] += rng.choice([".jpg", ".pdf", ".zip"])
        elif kind == "malformed":
            page["url"] = rng.choice(["http://localhost/page", "https://user@host.example/", "ftp://files.example/a/b"])
        elif kind == "same url":
            page["url"] = rng.choice(self.recent)["url"]
        elif kind == "foreign":
            words = FOREIGN[rng.choice(list(FOREIGN))].split()
            page["text"] = " ".join(rng.choice(words) + rng.choice(["", "", "", "", ",", "."]) for _ in range(200)) + "."
        elif kind == "short":
            page["text"] = prose(rng, 2)
        elif kind == "repeated lines":
            page["text"] = "\n".join([prose(rng, 3)] * 12 + [prose(rng, 4)])
        elif kind == "symbols":
            page["text"] = " ".join(f"{rng.randrange(10**6)} # {rng.choice(WORDS)} ..." for _ in range(120))
        elif kind == "exact":
            page["text"] = rng.choice(self.recent)["text"].replace(". ", rng.choice([". ", ".  ", ".\n\n"]))
        elif kind == "near":
            first = rng.choice(self.recent)
            page["text"] = edited(rng, first["text"])
            page["similarity"] = similarity(first["text"], page["text"])
        elif kind == "contaminated":
            page["text"] = f"{page['text']} {rng.choice(self.tasks)} {prose(rng, 5)}"
        return page


def make(folder, megabytes, seed):
    os.makedirs(folder, exist_ok=True)
    names = ["pages0.jsonl", "pages1.jsonl", "pages2.jsonl.gz", "pages3.jsonl.bz2"]
    pages, limit = Pages(seed), megabytes * 1e6 / len(names)
    for name in names:
        opener = gzip.open if name.endswith(".gz") else bz2.open if name.endswith(".bz2") else open
        written = 0
        with opener(os.path.join(folder, name), "wt", encoding="utf-8") as file:
            while written < limit:
                line = json.dumps(pages.page(), ensure_ascii=False) + "\n"
                written += len(line.encode())
                file.write(line)
    with open(os.path.join(folder, "tasks.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in pages.tasks)
    with open(os.path.join(folder, "domains.txt"), "w", encoding="utf-8") as file:
        file.writelines(f"forbidden{i}\n" for i in range(50))
    inputs = ", ".join(json.dumps(os.path.join(folder, name)) for name in names)
    with open(os.path.join(folder, "recipe.toml"), "w", encoding="utf-8") as file:
        file.write(f'inputs = [{inputs}]\noutput = "{folder}/clean"\n'
                   f'[[step]]\nname = "urls"\ndomains = "{folder}/domains.txt"\n'
                   '[[step]]\nname = "text"\nlanguages = "en"\n[[step]]\nname = "duplicates"\n'
                   f'[[step]]\nname = "decontaminate"\ntasks = "{folder}/tasks.jsonl"\naction = "drop"\ncommon = 1000000\n'
                   '[[step]]\nname = "shuffle"\nseed = 7\n')  # fmt: skip
    print(f"{pages.count} pages in {folder}; clean them with: megatron_clean run {folder}/recipe.toml")


def read(folder, names):
    for name in names:
        opener = gzip.open if name.endswith(".gz") else bz2.open if name.endswith(".bz2") else open
        with opener(os.path.join(folder, name), "rt", encoding="utf-8") as file:
            yield from map(json.loads, file)


def removed_by_step(report):
    counts = {report["step"]: sum(rule["documents"] if isinstance(rule, dict) else rule for rule in report["removed"].values())}
    for earlier in report.get("earlier", []):
        counts.update(removed_by_step(earlier))
    return counts


def judge(folder):
    left, wrong_texts = set(), 0
    for page in read(os.path.join(folder, "clean"), ["documents.jsonl"]):
        left.add(page["id"])
        wrong_texts += "hash" in page and hash_of(page["text"]) != page["hash"]
    planted, removed, near = collections.Counter(), collections.Counter(), []
    for page in read(folder, sorted(name for name in os.listdir(folder) if name.startswith("pages"))):
        planted[page["kind"]] += 1
        removed[page["kind"]] += page["id"] not in left
        if page["kind"] == "near":
            near.append((page["similarity"], page["id"] not in left))
    failed = []
    with open(os.path.join(folder, "clean", "report.json"), encoding="utf-8") as file:
        by_step = removed_by_step(json.load(file))
    print(f"{'planted':16}{'pages':>9}{'removed':>9}   recall")
    for kind, (_, step) in KINDS.items():
        print(f"{kind:16}{planted[kind]:9}{removed[kind]:9}   {removed[kind] / max(planted[kind], 1):.4f}")
        if kind != "near" and removed[kind] != (planted[kind] if step else 0):
            failed.append(kind)
    print(f"\n{'step':16}{'removed':>9}{'planted':>9}   precision")
    for step in ("urls", "text", "duplicates", "decontaminate"):
        right = sum(removed[kind] for kind, (_, of) in KINDS.items() if of == step)
        print(f"{step:16}{by_step.get(step, 0):9}{right:9}   {right / max(by_step.get(step, 0), 1):.4f}")
    chances = [1 - (1 - j**ROWS) ** BANDS for j, _ in near if j >= CHECKED]
    found = sum(gone for j, gone in near if j >= CHECKED)
    deviation = math.sqrt(sum(p * (1 - p) for p in chances))
    print(f"\nnear duplicates of similarity {CHECKED} or more: {len(chances)}, expected to be found "
          f"{sum(chances):.1f} +- {deviation:.1f}, found {found}; below it {sum(gone for j, gone in near if j < CHECKED)} "
          f"of {len(near) - len(chances)} removed")  # fmt: skip
    print(f"texts that came out otherwise than planted: {wrong_texts}")
    if abs(found - sum(chances)) > 4 * deviation + 1 or any(gone for j, gone in near if j < CHECKED):
        failed.append("near")
    if wrong_texts > 0:
        failed.append("texts")
    print("wrong: " + ", ".join(failed) if failed else "all as planted")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["make", "judge"])
    parser.add_argument("folder")
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.command == "judge":
        return judge(arguments.folder)
    make(arguments.folder, arguments.megabytes, arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
