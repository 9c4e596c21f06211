#!/usr/bin/env python3
"""Makes tests/golden/repair.json: damaged sentences as ftfy repairs them, and the languages that pycld2 finds.

Usage: python3 scripts/golden/make_repair_golden.py [tests/golden/repair.json]           (needs ftfy 6.3 and pycld2)
"""

import json
import random
import sys

import ftfy
import ftfy.bad_codecs  # noqa: F401  (the sloppy encodings)
import pycld2

SENTENCES = {
    "en": "The ferry leaves the harbour at half past seven, and no passenger on board knows how long the crossing will take.",
    "de": "Größere Brücken müssen alle sechs Jahre geprüft werden, auch wenn niemand einen Schaden vermutet hat.",
    "fr": "À la fin de l’été, les élèves étaient déjà rentrés chez eux, où le dîner les attendait.",
    "es": "El niño preguntó dónde estaba la montaña más alta del país, y su abuela señaló hacia el sur.",
    "pt": "Às cinco horas da manhã não há ninguém na estação, mas o café já está aberto.",
    "it": "Perché il treno è in ritardo, i viaggiatori aspettano sulla banchina più di un’ora.",
    "nl": "De bakker opent zijn winkel om zes uur, omdat de eerste klanten vroeg naar hun werk gaan.",
    "sv": "Fåglarna sjöng högt på morgonen när båten gled över den stilla sjön.",
    "pl": "Zażółć gęślą jaźń, powiedział nauczyciel, a dzieci śmiały się z dziwnego zdania.",
    "cs": "Příliš mnoho lidí čekalo na nádraží, protože vlak měl opět velké zpoždění.",
    "hu": "A folyó fölött új hidat építenek, hogy a városlakók gyorsabban átérjenek.",
    "tr": "Çocuklar öğleden sonra bahçede oynadılar ve akşam eve yorgun döndüler.",
    "ru": "Поезд пришёл на станцию рано утром, когда город ещё спал.",
    "uk": "Їжак шукав у лісі гриби, щоб підготуватися до довгої зими.",
    "el": "Το πλοίο έφυγε από το λιμάνι νωρίς το πρωί, πριν ανατείλει ο ήλιος.",
    "he": "הילדים הלכו לבית הספר בבוקר וחזרו הביתה בצהריים.",
    "ar": "ذهب الأولاد إلى المدرسة في الصباح وعادوا إلى البيت عند الظهر.",
    "hi": "बच्चे सुबह स्कूल गए और दोपहर को घर लौट आए।",
    "ja": "朝早く港を出た船は、夕方になってやっと島に着きました。",
    "zh": "孩子们早上去学校，中午回家吃饭，然后又去操场踢足球。",
    "ko": "아이들은 아침에 학교에 갔다가 점심때 집으로 돌아왔습니다.",
    "vi": "Buổi sáng bọn trẻ đi học, đến trưa thì về nhà ăn cơm.",
}
PIECES = ["“quoted” and ‘half’", "it’s 5 € – or £4…", "café\u00a0crème", "naïve façade", "½ × ¾ ± 2°", "smile 😀!", "ﬁne ﬂow ŉ ǆ",
          "ＦＵＬＬ　ｗｉｄｔｈ", "ﾊﾝｶｸ", "e\u0301 A\u030a \u1100\u1161", "one\r\ntwo\rthree\u2028four\x85five", "\x1b[31mred\x1b[0m", "nul\x00 bell\x07\x7f\ufeff",
          "&amp;amp; &lt;b&gt; &EACUTE; &#x2019; &#146; &nosuch;", "<b>&amp;</b>", "a & b &c", "Ã la carte", "\u00a0\u00ad soft"]  # fmt: skip
ENCODINGS = ["latin-1", "sloppy-windows-1252", "sloppy-windows-1252", "sloppy-windows-1251", "sloppy-windows-1250",
             "sloppy-windows-1253", "sloppy-windows-1254", "sloppy-windows-1257", "iso-8859-2", "macroman", "cp437"]  # fmt: skip


def damaged(text, rng):
    encoding = rng.choice(ENCODINGS)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        text = text.encode("utf-8", "surrogatepass").decode(encoding, "replace")
    change = rng.random()
    if change < 0.3:
        text = text.replace("\u00a0", " ")
    elif change < 0.4:
        text = text.replace("\ufffd", "?")
    return text


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/repair.json"
    rng = random.Random(35)
    sources = list(SENTENCES.values()) + PIECES
    texts = list(sources)
    for source in sources:
        texts += [damaged(source, rng) for _ in range(6)]
    texts += [damaged(rng.choice(sources), rng) + rng.choice([" ", "\n", " ok "]) + rng.choice(sources) for _ in range(60)]
    texts = list(dict.fromkeys(texts))
    repairs = [[text, ftfy.fix_text(text)] for text in texts]
    languages = []
    for text in SENTENCES.values():
        reliable, _, found = pycld2.detect(text, isPlainText=True)
        languages.append([text, found[0][1], found[0][2], reliable])
    with open(path, "w") as file:
        json.dump({"ftfy": ftfy.__version__, "repairs": repairs, "languages": languages}, file, ensure_ascii=True, indent=0)
        file.write("\n")
    changed = sum(text != repaired for text, repaired in repairs)
    print(f"{path}: {len(repairs)} texts, {changed} of them repaired, {len(languages)} languages")


if __name__ == "__main__":
    main()
