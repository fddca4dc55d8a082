//! The meta commands, answered as memcached 1.6.18 does; later ones have more.

use super::{Conversation, ours, same};

pub const CONVERSATIONS: &[Conversation] = &[
    same(
        "mg of nothing, and of something without its value",
        "mg a\r\nmg a v k O9\r\nmn\r\nset a 5 0 3\r\nabc\r\nmg a\r\nmg a v\r\n",
        "EN\r\nEN ka O9\r\nMN\r\nSTORED\r\nHD\r\nVA 3\r\nabc\r\n",
    ),
    same(
        "mg tells what it is asked for, in that order",
        "set a 5 0 3\r\nabc\r\nmg a v t f s k c\r\nmg a s O1 k\r\nmg a v O12345678901234567890123456789012\r\n",
        "STORED\r\nVA 3 t-1 f5 s3 ka c#\r\nabc\r\nHD s3 O1 ka\r\nCLIENT_ERROR opaque token too long\r\n",
    ),
    same(
        "mg tells whether it was fetched before and when",
        "set a 5 0 3\r\nabc\r\nmg a h l t\r\nmg a h l t\r\nget a\r\nmg a h\r\n",
        "STORED\r\nHD h0 l# t-1\r\nHD h1 l# t-1\r\nVALUE a 5 3\r\nabc\r\nEND\r\nHD h1\r\n",
    ),
    same(
        "a get counts as a fetch",
        "set a 5 0 3\r\nabc\r\nget a\r\nmg a h\r\nset a 5 0 3\r\nabc\r\nmg a h\r\n",
        "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\nHD h1\r\nSTORED\r\nHD h0\r\n",
    ),
    same(
        "mg u is no fetch",
        "set a 5 0 3\r\nabc\r\nmg a u h v\r\nmg a h\r\nmg a h\r\nms a 1 u\r\n2\r\nmd a u\r\n",
        "STORED\r\nVA 3 h0\r\nabc\r\nHD h0\r\nHD h1\r\nHD\r\nHD\r\n",
    ),
    same(
        "mg q leaves out that nothing is there",
        "mg a q k\r\nset a 5 0 3\r\nabc\r\nmg a q v k\r\nmn\r\n",
        "STORED\r\nVA 3 ka\r\nabc\r\nMN\r\n",
    ),
    same(
        "keys in base64",
        "ms YQ== 3 b\r\nabc\r\nmg YQ== b v k\r\nmg YR== b k\r\nmg Yg== b k O9\r\nmg a b\r\nmg YQ b\r\nmg a* b\r\n",
        "HD\r\nVA 3 kYQ== b\r\nabc\r\nHD kYQ== b\r\nEN kYg== b O9\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\n",
    ),
    same(
        "mg T changes when it ends",
        "set a 5 0 3\r\nabc\r\nmg a t T50\r\nmg a T70 t\r\nmg a t\r\nmg a T-1 v\r\nmg a\r\n",
        "STORED\r\nHD t-1\r\nHD t#\r\nHD t#\r\nVA 3\r\nabc\r\nEN\r\n",
    ),
    same(
        "mg N makes an empty item, and its maker wins",
        "mg a N30 v c t\r\nmg a N30 v t\r\nmg a v\r\nmg a N30 k\r\n",
        "VA 0 c# t# W\r\n\r\nVA 0 t# Z\r\n\r\nVA 0 Z\r\n\r\nHD ka Z\r\n",
    ),
    same("mg N with a time in the past", "mg a N-1 v\r\nmg a\r\n", "VA 0 W\r\n\r\nEN\r\n"),
    same("mg N and T", "mg a N30 T100 t\r\nmg a t\r\n", "HD t# W\r\nHD t# Z\r\n"),
    same(
        "mg R: whoever asks when little time is left wins, once",
        "set a 0 100 1\r\n1\r\nmg a R30\r\nmg a R200 t\r\nmg a R200\r\nmg a\r\n",
        "STORED\r\nHD\r\nHD t# W\r\nHD Z\r\nHD Z\r\n",
    ),
    same("mg R of what never ends", "set a 0 0 1\r\n1\r\nmg a R30\r\n", "STORED\r\nHD\r\n"),
    same(
        "flags that are none, twice, or too many",
        "mg\r\nmg a v v\r\nmg a !\r\nmg a T\r\nmg a Nx\r\nmg a R\r\nmg a M\r\nmg a D\r\nmg a Fx\r\nmg a 5\r\nmg a v k q q\r\n",
        "ERROR\r\nCLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR incorrect length for M token\r\nCLIENT_ERROR invalid numeric delta value\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR duplicate flag\r\n",
    ),
    same(
        "of several things that are wrong the last one is told, but what is no flag ends it",
        "mg a Tx !\r\nmg a Tx Dx\r\nmg a Dx Tx\r\nmg a Fx\r\nmg a Tx Fx\r\nmg a Fx Tx\r\nmg * b Tx\r\nmg * Tx b\r\nmg a O12345678901234567890123456789012 Tx\r\nms a 1 O12345678901234567890123456789012 MX\r\n1\r\nma a O12345678901234567890123456789012 MX\r\nmd a O12345678901234567890123456789012\r\n",
        "CLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid numeric delta value\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR invalid mode for ms M token\r\nCLIENT_ERROR invalid mode for ma M token\r\nCLIENT_ERROR opaque token too long\r\n",
    ),
    same(
        "P and L are for proxies, and not heeded",
        "mg a P1 L2 v\r\nms a 1 P1 L2\r\n1\r\nma a P L v\r\nmd a P\r\n",
        "EN\r\nHD\r\nVA 1\r\n2\r\nHD\r\n",
    ),
    same(
        "T holds from where it stands on, for R too",
        "set a 0 0 1\r\n1\r\nmg a T100 R200\r\nmg a\r\nset a 0 100 1\r\n1\r\nmg a R200 T3600\r\nset c 0 100 1\r\n1\r\nmg c T3600 R200\r\nset b 0 0 1\r\n1\r\nma b T0 t\r\nma b t T50\r\nma n N0 t\r\nma m t N50\r\nmg x t N50\r\n",
        "STORED\r\nHD W\r\nHD Z\r\nSTORED\r\nHD W\r\nSTORED\r\nHD\r\nSTORED\r\nHD t-1\r\nHD t-1\r\nHD t-1\r\nHD t-1\r\nHD t-1 W\r\n",
    ),
    same(
        "of N and T the last one holds",
        "mg a T-1 N50\r\nmg a\r\nmg b N50 T-1\r\nmg b\r\nma c T-1 N50\r\nmg c\r\nma d N50 T-1\r\nmg d\r\n",
        "HD W\r\nHD Z\r\nHD W\r\nEN\r\nHD\r\nHD\r\nHD\r\nEN\r\n",
    ),
    same(
        "flags of other commands are taken and not heeded",
        "set a 5 0 3\r\nabc\r\nmg a C5 I F1 J1 D1 v\r\n",
        "STORED\r\nVA 3\r\nabc\r\n",
    ),
    same(
        "ms",
        "ms a 2\r\nhi\r\nmg a v f t\r\nms a 2 c F77 T100 k O1\r\nho\r\nmg a v f t\r\n",
        "HD\r\nVA 2 f0 t-1\r\nhi\r\nHD c# ka O1\r\nVA 2 f77 t#\r\nho\r\n",
    ),
    same("ms with a key in base64", "ms YQ== 2 b k\r\nhi\r\nget a\r\n", "HD kYQ== b\r\nVALUE a 0 2\r\nhi\r\nEND\r\n"),
    same(
        "a key of any bytes",
        "ms AAo= 2 b\r\nhi\r\nmg AAo= b v k\r\nmd AAo= b\r\n",
        "HD\r\nVA 2 kAAo= b\r\nhi\r\nHD\r\n",
    ),
    same("ms q leaves out that it is done", "ms a 2 q\r\nhi\r\nms a 2 ME q k\r\nho\r\nmn\r\n", "NS ka\r\nMN\r\n"),
    same(
        "ms modes",
        "ms a 2 MR\r\nhi\r\nms a 2 MA\r\nhi\r\nms a 2 MP k O1\r\nhi\r\nms a 2 ME\r\nhi\r\nms a 2 ME\r\nho\r\nms a 2 MR F7\r\nHI\r\nms a 1 MA\r\n>\r\nms a 1 MP\r\n<\r\nmg a v f\r\nms a 1 MS\r\n1\r\n",
        "NS\r\nNS\r\nNS ka O1\r\nHD\r\nNS\r\nHD\r\nHD\r\nHD\r\nVA 4 f7\r\n<HI>\r\nHD\r\n",
    ),
    same(
        "ms C stores if the version is this one",
        "ms a 2 C5\r\nhi\r\nms a 2\r\nhi\r\nms a 2 C18446744073709551615\r\nho\r\nms a 2 C18446744073709551615 q k\r\nho\r\nms a 2 MR C5\r\nho\r\nms a 2 MA C18446744073709551615\r\nho\r\nms a 2 ME C5\r\nho\r\nmg a v\r\n",
        "NF\r\nHD\r\nEX\r\nEX ka\r\nEX\r\nEX\r\nNS\r\nVA 2\r\nhi\r\n",
    ),
    same(
        "what is not stored has no version to tell",
        "ms a 1 MR c\r\n1\r\nms a 1 C5 k c\r\n1\r\nms a 1\r\n1\r\nms a 1 ME c O7\r\n1\r\nms a 1 C18446744073709551615 c q\r\n1\r\n",
        "NS c0\r\nNF ka c0\r\nHD\r\nNS c0 O7\r\nEX c0\r\n",
    ),
    same(
        "C0 is a version that nothing has, and none at all where a value is changed in place",
        "ms a 1 C0\r\n1\r\nms a 1\r\n1\r\nms a 1 C0\r\n2\r\nms a 1 C0 MA\r\n2\r\nma a C0 v\r\nmd a C0\r\ncas a 0 0 1 0\r\n1\r\nms b 1 C0 MP\r\n1\r\n",
        "NF\r\nHD\r\nEX\r\nHD\r\nVA 2\r\n13\r\nEX\r\nEXISTS\r\nNS\r\n",
    ),
    same(
        "ms I stores what comes late, as stale, with the time that was left",
        "ms b 0\r\n\r\nms a 2 T100 F77\r\nhi\r\nms a 2 C1 I T5\r\nho\r\nmg a v t f\r\nmg a v\r\nmg a\r\nms a 2\r\nhu\r\nmg a v t\r\n",
        "HD\r\nHD\r\nHD\r\nVA 2 t# f0 X W\r\nho\r\nVA 2 Z X\r\nho\r\nHD Z X\r\nHD\r\nVA 2 t-1\r\nhu\r\n",
    ),
    same(
        "ms I keeps that somebody makes it anew",
        "set a 5 0 3\r\nabc\r\nmd a I\r\nmg a q\r\nms a 2 C1 I\r\nhi\r\nmg a v\r\n",
        "STORED\r\nHD\r\nHD X W\r\nHD\r\nVA 2 Z X\r\nhi\r\n",
    ),
    same(
        "ms I of what comes in time",
        "ms a 2 I\r\nhi\r\nmg a v\r\nms a 2 C18446744073709551615 I\r\nho\r\n",
        "HD\r\nVA 2\r\nhi\r\nEX\r\n",
    ),
    same("ms with a time in the past", "ms a 2 T-1\r\nhi\r\nmg a\r\n", "HD\r\nEN\r\n"),
    same(
        "ms that is refused takes its block along, but not without a length",
        "ms\r\nms a\r\nms a x\r\nms a -1\r\nms a 2 MX\r\nhi\r\nms a 2 Ms\r\nhi\r\nms a 2 S2\r\nhi\r\nms a 2 Tx\r\nhi\r\nms a 2 C\r\nhi\r\nms a 2 k k\r\nhi\r\nms a 2 b\r\nhi\r\nmn\r\n",
        "ERROR\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR invalid mode for ms M token\r\nCLIENT_ERROR invalid mode for ms M token\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR duplicate flag\r\nCLIENT_ERROR error decoding key\r\nMN\r\n",
    ),
    same(
        "ms with a block of another length",
        "ms a 2 q\r\nhixx\r\nmn\r\nmg a\r\n",
        "CLIENT_ERROR bad data chunk\r\nERROR\r\nMN\r\nEN\r\n",
    ),
    same(
        "md",
        "md\r\nmd a\r\nset a 5 0 3\r\nabc\r\nmd a k O1\r\nmd a k O1\r\nmg a\r\n",
        "ERROR\r\nNF\r\nSTORED\r\nHD ka O1\r\nNF ka O1\r\nEN\r\n",
    ),
    same(
        "md q leaves out that it is done",
        "set a 5 0 3\r\nabc\r\nmd a q k\r\nmd a q k\r\nmn\r\n",
        "STORED\r\nNF ka\r\nMN\r\n",
    ),
    same(
        "md C deletes if the version is this one",
        "md a C1\r\nset a 5 0 3\r\nabc\r\nmd a C18446744073709551615\r\nmd a C18446744073709551615 q k\r\nmd a C18446744073709551615 I\r\nmg a v\r\n",
        "NF\r\nSTORED\r\nEX\r\nEX ka\r\nEX\r\nVA 3\r\nabc\r\n",
    ),
    same(
        "md I marks as stale: the first who asks is to make it anew",
        "set a 5 0 3\r\nabc\r\nmd a I\r\nmg a v t c f\r\nmg a v t\r\nget a\r\nmg a v\r\n",
        "STORED\r\nHD\r\nVA 3 t-1 c# f5 X W\r\nabc\r\nVA 3 t-1 Z X\r\nabc\r\nVALUE a 5 3\r\nabc\r\nEND\r\nVA 3 Z X\r\nabc\r\n",
    ),
    same(
        "md I T, and a touch later",
        "set a 5 0 3\r\nabc\r\nmd a I T30\r\nmg a t\r\nmg a t\r\ntouch a 50\r\nmg a v\r\nmd a I q\r\nmg a\r\n",
        "STORED\r\nHD\r\nHD t# X W\r\nHD t# Z X\r\nTOUCHED\r\nVA 3 Z X\r\nabc\r\nHD X W\r\n",
    ),
    same("md T without I", "set a 5 0 3\r\nabc\r\nmd a T30\r\nmg a\r\nmd a I\r\n", "STORED\r\nHD\r\nEN\r\nNF\r\n"),
    same(
        "what is stale is fresh once it is written",
        "set a 5 0 3\r\nabc\r\nmd a I\r\nms a 2\r\nhi\r\nmg a v\r\nmd a I\r\nappend a 0 0 1\r\nx\r\nmg a v\r\nmd a I\r\ndelete a\r\nadd a 0 0 1\r\n1\r\nmg a v\r\n",
        "STORED\r\nHD\r\nHD\r\nVA 2\r\nhi\r\nHD\r\nSTORED\r\nVA 3\r\nhix\r\nHD\r\nDELETED\r\nSTORED\r\nVA 1\r\n1\r\n",
    ),
    same(
        "a counter stays stale",
        "set a 0 0 1\r\n1\r\nmd a I\r\nincr a 1\r\nmg a v\r\n",
        "STORED\r\nHD\r\n2\r\nVA 1 X W\r\n2\r\n",
    ),
    same(
        "md and ma tell little of what is wrong",
        "md a v v\r\nmd a !\r\nma a k k\r\nma a Dx\r\nma a D-1\r\nma a D18446744073709551616\r\nma a Jx\r\nma a Mincr\r\nma a MX\r\nmd a* b\r\nma a* b\r\nmn\r\n",
        "CLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid mode for ma M token\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nMN\r\n",
    ),
    same(
        "ma counts, up and down, and wraps as incr does",
        "ma\r\nma a\r\nset a 5 0 1\r\n9\r\nma a\r\nma a v\r\nma a D5 v k\r\nma a MD v\r\nma a M- D100 v\r\nma a M+ D18446744073709551615 v\r\nma a MI v\r\nget a\r\n",
        "ERROR\r\nNF\r\nSTORED\r\nHD\r\nVA 2\r\n11\r\nVA 2 ka\r\n16\r\nVA 2\r\n15\r\nVA 1\r\n0\r\nVA 20\r\n18446744073709551615\r\nVA 1\r\n0\r\nVALUE a 5 20\r\n0                   \r\nEND\r\n",
    ),
    same(
        "ma N makes a counter",
        "ma a N0 J10 v t c k O5\r\nma a v t k\r\nma b N0\r\nma b v\r\nma c N0 J5 D3 v\r\nma d N-1 v\r\nmg d\r\n",
        "VA 2 t-1 c# ka O5\r\n10\r\nVA 2 t-1 ka\r\n11\r\nHD\r\nVA 1\r\n1\r\nVA 1\r\n5\r\nVA 1\r\n0\r\nEN\r\n",
    ),
    same(
        "ma T changes when it ends",
        "ma a N50 t v\r\nma a T0 t v\r\nma a T30 t\r\nma a t v T-1\r\nmg a\r\n",
        "VA 1 t#\r\n0\r\nVA 1 t-1\r\n1\r\nHD t#\r\nVA 1 t#\r\n3\r\nEN\r\n",
    ),
    same(
        "ma C counts if the version is this one",
        "ma a C1\r\nma a N0 J13\r\nma a C18446744073709551615\r\nma a C18446744073709551615 q k\r\nma a v\r\n",
        "NF\r\nHD\r\nEX\r\nEX ka\r\nVA 2\r\n14\r\n",
    ),
    same(
        "ma q leaves out that it is done",
        "ma a q k\r\nset a 0 0 1\r\n1\r\nma a q\r\nma a q v\r\nmn\r\nma a v\r\n",
        "NF ka\r\nSTORED\r\nMN\r\nVA 1\r\n4\r\n",
    ),
    same("ma q tells that it made the counter", "ma a N0 q k\r\nma a N0 q\r\nmn\r\n", "HD ka\r\nMN\r\n"),
    same(
        "ma of what is no number",
        "set a 5 0 3\r\nabc\r\nma a\r\nma a T5 q\r\nmn\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nMN\r\n",
    ),
    same(
        "ma with a key in base64",
        "ma YQ== b N0 k v\r\nget a\r\n",
        "VA 1 kYQ== b\r\n0\r\nVALUE a 0 1\r\n0\r\nEND\r\n",
    ),
    same("mn has no arguments, and takes them", "mn\r\nmn x y\r\n", "MN\r\nMN\r\n"),
    same(
        "me",
        "me\r\nme a\r\nset a 5 0 3\r\nabc\r\nme a\r\nget a\r\nme a\r\nme a b\r\nmn\r\n",
        "CLIENT_ERROR bad command line format\r\nEN\r\nSTORED\r\nME a exp=-1 la=# cas=# fetch=no cls=1 size=#\r\nVALUE a 5 3\r\nabc\r\nEND\r\nME a exp=-1 la=# cas=# fetch=yes cls=1 size=#\r\nCLIENT_ERROR bad command line format\r\nMN\r\n",
    ),
    ours(
        "an answer shows the key as it was asked for, not as it was stored",
        "set a 5 0 3\r\nabc\r\nmg YQ== b k\r\nms YQ== 1 b\r\n1\r\nmg a k\r\nme YQ== b\r\n",
        "STORED\r\nHD kYQ== b\r\nHD\r\nHD ka\r\nME YQ== exp=-1 la=# cas=# fetch=yes cls=1 size=#\r\n",
    ),
    ours(
        "E gives the version that clients see",
        "ms a 2 E77 c\r\nhi\r\nmg a c\r\ngets a\r\ncas a 0 0 2 76\r\nno\r\nms a 2 C78\r\nno\r\nms a 2 C77 E100\r\nho\r\nmg a v c\r\nmd a I E200\r\nmg a c\r\nmd a C200\r\nmg b N30 E5 c\r\nma n N0 E9 c\r\nma n E10 c\r\n",
        "HD c77\r\nHD c77\r\nVALUE a 0 2 77\r\nhi\r\nEND\r\nEXISTS\r\nEX\r\nHD\r\nVA 2 c100\r\nho\r\nHD\r\nHD c200 X W\r\nHD\r\nHD c5 W\r\nHD c9\r\nHD c10\r\n",
    ),
    ours(
        "a get shows the version that was given, whatever comes behind it",
        "ms a 2 E77\r\nhi\r\ngets a\r\nmd a\r\nms a 2 E78\r\nho\r\nmg a v c\r\nms a 2 c\r\nhu\r\nms a 2 E79\r\nha\r\ngets a\r\ndelete a\r\ngets a\r\n",
        "HD\r\nVALUE a 0 2 77\r\nhi\r\nEND\r\nHD\r\nHD\r\nVA 2 c78\r\nho\r\nHD c#\r\nHD\r\nVALUE a 0 2 79\r\nha\r\nEND\r\nDELETED\r\nEND\r\n",
    ),
    ours(
        "md x leaves the item without its value",
        "set a 5 100 3\r\nabc\r\nmd a x\r\nmg a v f t\r\nmd a x I\r\nmg a s\r\nmd b x\r\nmd a x F7 T-1\r\nmg a\r\nset c 0 0 1\r\n1\r\nmd c x F7\r\nmg c f\r\n",
        "STORED\r\nHD\r\nVA 0 f0 t-1\r\n\r\nHD\r\nHD s0 X W\r\nNF\r\nHD\r\nEN\r\nSTORED\r\nHD\r\nHD f7\r\n",
    ),
    ours(
        "ms N makes what is not there to append to",
        "ms a 2 MA N0\r\nhi\r\nms a 2 MA N0\r\nho\r\nms b 2 MP N100 F3\r\nhi\r\nmg b t f\r\nmg a v\r\n",
        "HD\r\nHD\r\nHD\r\nHD t# f3\r\nVA 4\r\nhiho\r\n",
    ),
    ours(
        "ms s tells the length, of an append that of all of it",
        "ms a 2 s\r\nhi\r\nms a 4 MA s\r\n you\r\nms a 1 MP k s\r\n>\r\nms b 2 MA s N0\r\nhi\r\nms c 2 MA s\r\nhi\r\nmg a v\r\n",
        "HD s2\r\nHD s6\r\nHD ka s7\r\nHD s2\r\nNS\r\nVA 7\r\n>hi you\r\n",
    ),
    ours(
        "a version that a command before it gave is the one that is compared",
        "ms a 2 E77\r\nhi\r\ncas a 0 0 2 77\r\nho\r\nms a 2 E78\r\nhu\r\nms a 2 C78 MA\r\n!!\r\nms a 2 E79\r\nhu\r\nmd a C79\r\nmg a\r\n",
        "HD\r\nSTORED\r\nHD\r\nHD\r\nHD\r\nHD\r\nEN\r\n",
    ),
    ours(
        "flags have 32 bits in ms too",
        "ms a 2 F4294967296\r\nhi\r\nmn\r\n",
        "CLIENT_ERROR bad command line format\r\nMN\r\n",
    ),
    ours("a zero byte is no end of a meta line", "mg a\0v\r\nmn\r\n", "CLIENT_ERROR bad command line format\r\nMN\r\n"),
];
