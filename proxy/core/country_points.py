"""For each country a point that is near most of its people: what a database of countries can say of coordinates.

Decides: the coordinates that stand for a country. Not its middle: Canada's is tundra, and latency is people's.
Must not know: databases, addresses.
"""

from __future__ import annotations

from collections.abc import Mapping

# ISO 3166-1 alpha-2, latitude, longitude, in whole degrees: half a degree is 0.5 ms.
_POINTS = """
AD 43 2    AE 25 55   AF 34 68   AG 17 -62  AI 18 -63  AL 41 20   AM 40 44   AO -10 14  AQ -78 167 AR -34 -60
AS -14 -171 AT 48 16  AU -34 149 AW 13 -70  AX 60 20   AZ 40 49   BA 44 18   BB 13 -60  BD 24 90   BE 51 4
BF 12 -2   BG 42 24   BH 26 51   BI -3 30   BJ 7 2     BL 18 -63  BM 32 -65  BN 5 115   BO -17 -66 BQ 12 -68
BR -20 -46 BS 25 -77  BT 27 90   BV -54 3   BW -24 26  BY 54 28   BZ 17 -89  CA 45 -78  CC -12 97  CD -4 20
CF 5 19    CG -4 15   CH 47 8    CI 6 -5    CK -21 -160 CL -33 -71 CM 5 11   CN 32 114  CO 5 -75   CR 10 -84
CU 22 -81  CV 15 -23  CW 12 -69  CX -10 106 CY 35 33   CZ 50 15   DE 51 9    DJ 12 43   DK 56 11   DM 15 -61
DO 19 -70  DZ 36 3    EC -1 -79  EE 59 25   EG 30 31   EH 27 -13  ER 15 39   ES 40 -3   ET 9 39    FI 61 25
FJ -18 178 FK -52 -58 FM 7 158   FO 62 -7   FR 48 3    GA 0 10    GB 52 -1   GD 12 -62  GE 42 44   GF 5 -52
GG 49 -3   GH 6 -1    GI 36 -5   GL 64 -52  GM 13 -17  GN 10 -13  GP 16 -62  GQ 3 9     GR 38 23   GS -54 -37
GT 15 -91  GU 13 145  GW 12 -16  GY 7 -58   HK 22 114  HM -53 74  HN 15 -87  HR 45 16   HT 19 -72  HU 47 19
ID -7 109  IE 53 -7   IL 32 35   IM 54 -5   IN 22 78   IO -7 72   IQ 33 44   IR 35 51   IS 64 -22  IT 43 11
JE 49 -2   JM 18 -77  JO 32 36   JP 35 138  KE -1 37   KG 42 74   KH 12 105  KI 1 173   KM -12 43  KN 17 -63
KP 39 126  KR 37 127  KW 29 48   KY 19 -81  KZ 47 72   LA 18 103  LB 34 36   LC 14 -61  LI 47 10   LK 7 80
LR 6 -11   LS -29 28  LT 55 24   LU 50 6    LV 57 24   LY 32 15   MA 33 -7   MC 44 7    MD 47 29   ME 42 19
MF 18 -63  MG -19 47  MH 7 171   MK 42 21   ML 13 -8   MM 18 96   MN 48 107  MO 22 114  MP 15 146  MQ 15 -61
MR 18 -16  MS 17 -62  MT 36 14   MU -20 57  MV 4 73    MW -14 34  MX 20 -100 MY 3 102   MZ -20 35  NA -22 17
NC -22 166 NE 14 5    NF -29 168 NG 8 6     NI 12 -86  NL 52 5    NO 60 10   NP 28 85   NR -1 167  NU -19 -170
NZ -39 175 OM 23 58   PA 9 -80   PE -11 -77 PF -18 -150 PG -7 146 PH 14 121  PK 31 72   PL 52 19   PM 47 -56
PN -25 -130 PR 18 -66 PS 32 35   PT 39 -9   PW 7 134   PY -25 -57 QA 25 51   RE -21 56  RO 45 26   RS 45 21
RU 56 42   RW -2 30   SA 24 45   SB -9 160  SC -5 55   SD 15 33   SE 59 16   SG 1 104   SH -16 -6  SI 46 15
SJ 78 16   SK 48 19   SL 8 -13   SM 44 12   SN 15 -17  SO 3 45    SR 6 -55   SS 5 31    ST 0 7     SV 14 -89
SX 18 -63  SY 34 37   SZ -26 31  TC 22 -72  TD 11 16   TF -49 70  TG 7 1     TH 14 101  TJ 38 69   TK -9 -172
TL -9 126  TM 38 59   TN 36 10   TO -21 -175 TR 40 32  TT 10 -61  TV -9 179  TW 25 121  TZ -6 36   UA 49 31
UG 1 33    UM 19 167  US 38 -90  UY -35 -56 UZ 41 68   VA 42 12   VC 13 -61  VE 10 -67  VG 18 -65  VI 18 -65
VN 16 107  VU -17 168 WF -13 -176 WS -14 -172 XK 43 21 YE 15 44   YT -13 45  ZA -27 28  ZM -14 28  ZW -18 31
"""


def _table(text: str) -> Mapping[str, tuple[float, float]]:
    words = text.split()
    return {words[i]: (float(words[i + 1]), float(words[i + 2])) for i in range(0, len(words), 3)}


COUNTRY_POINTS = _table(_POINTS)


def country_point(country: str) -> tuple[float, float] | None:
    """Latitude and longitude in degrees for an ISO 3166-1 alpha-2 code, None for one that isn't known."""
    return COUNTRY_POINTS.get(country)
