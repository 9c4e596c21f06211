// Good text in many languages and of many kinds: nothing in it is damaged. Many lines have characters in a row that
// would be UTF-8 in some single-byte encoding.
#pragma once

#include <string_view>

namespace megatron::test {

inline constexpr std::string_view kUndamagedLines[] = {
    // French: capitals before closing quotes, non-breaking spaces before double punctuation.
    "LE CAFÉ «À L’ÉTOILÉ» EST FERMÉ… ET LE MUSÉE™ AUSSI",
    "Il a dit : « C’EST L’ÉTÉ », puis « VOILÀ », et s’en alla.",
    "« Voilà\u00A0», dit-elle, l’été\u00A0» et «\u00A0École\u00A0»",
    "“L’ÉCOLE DE LA LIBERTÉ” – GRATUITÉ, ÉGALITÉ” et ’À’",
    "À la fin de l’été, les élèves étaient déjà rentrés, où le dîner les attendait.",
    "Où ça ? Là-bas, au n°\u00A05, près du Pré-aux-Clercs ; 20\u00A0°C, 3½\u00A0€.",
    "LA SOCIÉTÉ® ET SA MARQUE DÉPOSÉE™, 2e ÉDITION",
    "Cœur, œuvre, bœuf, ŒUVRE, ÆTHER, naïveté, Noël, L’Haÿ-les-Roses",
    // German, Dutch, Scandinavian.
    "Größere Brücken müssen alle sechs Jahre geprüft werden, „auch wenn“ niemand klagt.",
    "»Größe« ist nicht »GRÖẞE«; ‚Ähnlich‘ und „Öl“ stehen in „Österreich“.",
    "ÜBERGRÖSSE – ÄÖÜ: „DAS Ä“, «DAS Ü», »DAS Ö«",
    "De coöperatie ziet reünies als een één-op-één-gesprek over ‘ideeën’.",
    "Smørrebrød på øen Æbelø: Å, Ø og Æ – »Å« er en bogstav.",
    "Fåglarna sjöng högt på morgonen när båten gled över sjön; våglängd 5 Å…",
    "Þetta er íslenska: ÞAÐ ER EKKI RÉTT™, sagði „hún“.",
    // Spanish, Portuguese, Italian, Catalan, Romanian.
    "¿Dónde está el niño? ¡En la montaña! —dijo la Mª Ángeles— 1ª y 2º.",
    "EL AÑO DE ESPAÑA… «MAÑANA», “CAMIÓN”, ¡OLÉ!",
    "Às cinco horas da MANHÔ, disse a “IRMû, não há ninguém na ESTAÇÃO…",
    "AMANHÃ… A IRMÃ DE JOÃO E A MAÇûNÃO” – 5ª-feira, MANHÃ?",
    "A letra “Ô e a letra “”; Ã e Õ são vogais nasais, «û também.",
    "Perché il treno è in ritardo? È così: «LA CITTÀ» e ‘VERITÀ’…",
    "Col·legi, L·L, ÀNGEL·LA, «ÒPERA», paral·lel, CAFÉ·BAR",
    "Înţelegerea în limba română: ŞTIINŢĂ, „MAMĂ”, «CĂ», Ștefan și Ținutul",
    // Polish, Czech, Slovak, Hungarian, Croatian.
    "Zażółć gęślą jaźń, powiedział nauczyciel, a dzieci śmiały się.",
    "ŻÓŁĆ, ŁÓDŹ, ŚWIĘTA… „GĘŚ”, »ŁĄKA« i ŹDŹBŁO",
    "Příliš žluťoučký kůň úpěl ďábelské ódy; ČEŠTÍ ŽÁCI, „ŘEČ“.",
    "Úžas",
    "Úžasne",
    "Ďalší šťastný deň: ľahší, ťažší, ĽUDIA, „ÁNO“",
    "Árvíztűrő tükörfúrógép; ŐSZŰL™, „KŐ”, »FŰ«, ÁRVÍZTŰRŐ",
    "Šuma je čista, đak žuri kući, ČĆŽŠĐ: „ŽIVOT“",
    "Õöö, jäääär, kuuuurija töööö: „Öö“ ja „Öö on ilus“",
    "Žąsys skrenda į šiaurę; „ŠĖŠĖLIS“, ĄŽUOLAS… Ķīlis, ĢĪME",
    "Çocuklar öğleden sonra bahçede oynadılar; İSTANBUL’A, IĞDIR, “ŞEKER”, ÇÖP’TE",
    // Greek.
    "Το πλοίο έφυγε από το λιμάνι νωρίς το πρωί· «ΕΛΛΑΔΑ», “ΑΘΗΝΑ”…",
    "Η ΜΈΡΑ ΤΌΣΟ ΩΡΑΊΑ; ΤΌ, ΝΈΑ, ΌΛΑ: «Ο» ή “Η”, α… β™ γ» ΜΊΑ ΉΤΑΝ",
    "Ω±5, Γ±0.2, Δ², σ²/N, χ² und Å² sind Größen in Formeln; R = 5 kΩ·m, 3 kΩ™",
    "A resolution of 3 kÅ or 5 mÅ? Not 2 eÅ either: kÅ is rare.",
    // Cyrillic.
    "Поезд пришёл на станцию «ТАСС» рано утром… США» и РФ™, № 5, В — это предлог.",
    "РОССИЯ… «МОСКВА», „ГОРОД“, С’ и Я”, А° Б®",
    "Їжак шукав у лісі гриби; надії, лінії, Марії», дії, історії… Історії»",
    "дії",
    "Марії»",
    "Лі",
    "Її",
    "Надії немає: «МРІЇ», ІІІ, Європа, ґанок, Ґрунт",
    "Београд је главни град Србије; Његош, Љубав, Ђак, џеп: „ЊЕГОВО“",
    "Ў Беларусі жывуць людзі; Ўсё будзе добра, «Ў»",
    "България: „СОФИЯ“, Щастие, ЪГЪЛ… и Ю™",
    // Vietnamese, Hebrew, Arabic, Indic, Thai.
    "Buổi sáng bọn trẻ đi học, đến trưa thì về nhà ăn cơm; ĐƯỜNG “VIỆT NAM”, ÂU, Ã, Ô…",
    "הילדים הלכו לבית הספר בבוקר וחזרו הביתה בצהריים – “כן”.",
    "ذهب الأولاد إلى المدرسة في الصباح وعادوا إلى البيت عند الظهر؛ «نعم»",
    "बच्चे सुबह स्कूल गए और दोपहर को घर लौट आए।",
    "เด็กๆ ไปโรงเรียนตอนเช้า “ครับ”",
    // Chinese, Japanese, Korean.
    "孩子们早上去学校，中午回家吃饭。“是的”……《书》—— 5 × 3 °C",
    "朝早く港を出た船は、夕方になってやっと「島」に着きました。",
    "아이들은 아침에 학교에 갔다가 점심때 집으로 돌아왔습니다.",
    "café 日本語 – naïve 中文 “É” Ω",
    // Boxes, phonetics, formulas, emoji, signs.
    "┌─┬─┐ │ A │ ├─┼─┤ └─┴─┘ ╔═╦═╗ ║ ╠═╬═╣ ╚═╩═╝ ─┤ ─┐ ═╗",
    "├── été\u00A0│ └── Größe ▀▄█▌▐░▒▓",
    "[ˈɡʁøːsə] /ˈnɔʃən/ [ʒə n‿e pa] θ ð ŋ ʃ ʒ ə æ",
    "√2 ≈ 1.41, √π ≤ 2, ∆x ≥ 0, ≠ ∞, √∫ ≈ ∞, x√π, ∆π, 2×½, 2×£5, 10×€5, 3\u00A0×\u00A04",
    "5 € – or £4…, ¥100, 20 °C ± 0.5 °C, ½ × ¾, §\u00A012, ¶ 3, © 2020, «©», ®, ™",
    "smile 😀! 👩‍👩‍👧 ❤️ ✓ ★ → ⇒ • item ‣ item",
    "conﬁé, ﬁété, ﬂéau, ﬁne",
    "Tokyo → Kyoto: 3 h 15′ 20″; 6′2″ – “OK”…",
    "ÉÈÊË ÀÂÄ ÎÏ ÔÖ ÛÜ Ç Ñ Õ Ã",
    "iPhone™, McÉlroy, eBay®, naïveté™, Zoë’s, Chloë”",
    "É hora… À noite, À tarde, É\u00A0» Ì ‘É’ “É” É™",
    "Ó, Ú, Í, Á: ‘Ó’, “Ú”, «Í», Á…, Ö–Ü, É—À",
};

}  // namespace megatron::test
