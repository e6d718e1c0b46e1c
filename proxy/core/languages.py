"""English names of languages, for people who choose one from a list.

Decides: the name of a code as models spell it: `en`, `pt-br`, `zh_hant`. Must not know: which languages are served.
Codes are those of ISO 639-1 and a few of three letters that translation models use; a code without a name is its own.
"""

from __future__ import annotations

_NAMES = """
aa Afar, ab Abkhazian, ace Acehnese, af Afrikaans, ak Akan, am Amharic, an Aragonese, ar Arabic, as Assamese,
ast Asturian, av Avaric, ay Aymara, az Azerbaijani, ba Bashkir, ban Balinese, be Belarusian, bg Bulgarian, bm Bambara,
bn Bangla, bo Tibetan, br Breton, bs Bosnian, ca Catalan, ce Chechen, ceb Cebuano, ckb Central Kurdish, co Corsican,
cs Czech, cv Chuvash, cy Welsh, da Danish, de German, dv Divehi, dz Dzongkha, ee Ewe, el Greek, en English,
eo Esperanto, es Spanish, et Estonian, eu Basque, fa Persian, ff Fula, fi Finnish, fil Filipino, fj Fijian, fo Faroese,
fr French, fy Western Frisian, ga Irish, gd Scottish Gaelic, gl Galician, gn Guarani, gu Gujarati, gv Manx, ha Hausa,
haw Hawaiian, he Hebrew, hi Hindi, hmn Hmong, hr Croatian, hsb Upper Sorbian, ht Haitian Creole, hu Hungarian,
hy Armenian, ia Interlingua, id Indonesian, ig Igbo, ii Sichuan Yi, ilo Iloko, io Ido, is Icelandic, it Italian,
iu Inuktitut, ja Japanese, jv Javanese, ka Georgian, kab Kabyle, kg Kongo, ki Kikuyu, kk Kazakh, kl Kalaallisut,
km Khmer, kn Kannada, ko Korean, kr Kanuri, ks Kashmiri, ku Kurdish, kv Komi, kw Cornish, ky Kyrgyz, la Latin,
lb Luxembourgish, lg Ganda, li Limburgish, ln Lingala, lo Lao, lt Lithuanian, ltg Latgalian, lv Latvian, mai Maithili,
mg Malagasy, mi Maori, mk Macedonian, ml Malayalam, mn Mongolian, mni Manipuri, mr Marathi, ms Malay, mt Maltese,
my Burmese, nb Norwegian Bokmål, nds Low German, ne Nepali, nl Dutch, nn Norwegian Nynorsk, no Norwegian, ns Northern
Sotho, nso Northern Sotho, ny Nyanja, oc Occitan, oj Ojibwe, om Oromo, or Odia, os Ossetic, pa Punjabi, pap Papiamento,
pl Polish, ps Pashto, pt Portuguese, qu Quechua, rm Romansh, rn Rundi, ro Romanian, ru Russian, rw Kinyarwanda,
sa Sanskrit, sc Sardinian, scn Sicilian, sd Sindhi, se Northern Sami, sg Sango, sh Serbo-Croatian, si Sinhala,
sk Slovak, sl Slovenian, sm Samoan, sn Shona, so Somali, sq Albanian, sr Serbian, ss Swati, st Southern Sotho,
su Sundanese, sv Swedish, sw Swahili, szl Silesian, ta Tamil, te Telugu, tg Tajik, th Thai, ti Tigrinya, tk Turkmen,
tl Tagalog, tn Tswana, to Tongan, tr Turkish, ts Tsonga, tt Tatar, tw Twi, ty Tahitian, ug Uyghur, uk Ukrainian,
ur Urdu, uz Uzbek, ve Venda, vi Vietnamese, wa Walloon, war Waray, wo Wolof, xh Xhosa, yi Yiddish, yo Yoruba,
yue Cantonese, za Zhuang, zh Chinese, zu Zulu
"""
_VARIANTS = """
arab Arabic script, br Brazil, ca Canada, cn China, cyrl Cyrillic, gb United Kingdom, hans Simplified,
hant Traditional, hk Hong Kong, latn Latin script, mx Mexico, pt Portugal, tw Taiwan, us United States
"""


def _table(text: str) -> dict[str, str]:
    pairs = (entry.split(maxsplit=1) for entry in text.split(","))
    return {code: " ".join(name.split()) for code, name in pairs}


NAMES, VARIANTS = _table(_NAMES), _table(_VARIANTS)


def display_name(code: str) -> str:
    """`German`, `Portuguese (Brazil)`, `Chinese (Traditional)`; the code itself where no name is known."""
    language, *rest = code.lower().replace("_", "-").split("-")
    name = NAMES.get(language)
    if name is None or not rest:
        return name or code
    return f"{name} ({', '.join(VARIANTS.get(part, part.upper()) for part in rest)})"
