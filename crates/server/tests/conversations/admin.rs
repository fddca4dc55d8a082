//! Commands about the server, and what the classic protocol has besides.

use super::{Conversation, ours, same};

pub const CONVERSATIONS: &[Conversation] = &[
    same(
        "bget is get",
        "bget\r\nbget a\r\nset a 0 0 1\r\n1\r\nbget a b\r\n",
        "ERROR\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    ),
    same("verbosity is understood", "verbosity 1 2\r\nverbosity a b c\r\n", "OK\r\nERROR\r\n"),
    same(
        "cache_memlimit is checked",
        "cache_memlimit\r\ncache_memlimit x\r\ncache_memlimit 0\r\ncache_memlimit 7 noreply\r\ncache_memlimit 1000000001\r\nmn\r\n",
        "ERROR\r\nERROR\r\nMEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\nMEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\nMN\r\n",
    ),
    same("refresh_certs without TLS", "refresh_certs\r\n", "Error TLS not enabled\r\n"),
    same(
        "shutdown where it is not allowed",
        "shutdown\r\nshutdown graceful\r\nshutdown x\r\n",
        "ERROR: shutdown not enabled\r\nERROR: shutdown not enabled\r\nERROR: shutdown not enabled\r\n",
    ),
    same(
        "slabs is checked",
        "slabs\r\nslabs automove\r\nslabs automove x\r\nslabs automove 5\r\nslabs automove freeratio 0.1\r\nslabs reassign\r\nslabs reassign x y\r\nslabs foo\r\nslabs foo bar\r\n",
        "ERROR\r\nERROR\r\nCLIENT_ERROR bad command line format\r\nERROR\r\nCLIENT_ERROR bad command line format\r\nERROR\r\nCLIENT_ERROR bad command line format\r\nERROR\r\nERROR\r\n",
    ),
    same(
        "lru is checked",
        "lru\r\nlru tune\r\nlru tune 10\r\nlru tune a b c d\r\nlru tune 90 90 1 1\r\nlru mode\r\nlru mode x\r\nlru temp_ttl\r\nlru temp_ttl x\r\nlru foo x\r\n",
        "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR hot and warm pcts must not exceed 80\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n",
    ),
    same(
        "lru_crawler",
        "lru_crawler\r\nlru_crawler sleep 100\r\nlru_crawler sleep 99999999\r\nlru_crawler sleep x\r\nlru_crawler tocrawl 100\r\nlru_crawler tocrawl x\r\nlru_crawler tocrawl\r\nlru_crawler crawl\r\nlru_crawler crawl x\r\nlru_crawler crawl 500\r\nlru_crawler metadump\r\nlru_crawler foo\r\nlru_crawler foo x\r\n",
        "ERROR\r\nOK\r\nCLIENT_ERROR sleep must be one second or less\r\nCLIENT_ERROR bad command line format\r\nOK\r\nCLIENT_ERROR bad command line format\r\nERROR\r\nERROR\r\nBADCLASS invalid class id\r\nBADCLASS invalid class id\r\nERROR\r\nERROR\r\nERROR\r\n",
    ),
    same(
        "stats detail",
        "stats detail\r\nstats detail on\r\nstats detail dump\r\nstats detail off\r\nstats detail x\r\n",
        "CLIENT_ERROR usage: stats detail on|off|dump\r\nOK\r\nEND\r\nOK\r\nCLIENT_ERROR usage: stats detail on|off|dump\r\n",
    ),
    same(
        "stats detail counts by prefix while it is on",
        "stats reset\r\nget user:1\r\nstats detail on\r\nget user:1\r\nset user:1 0 0 1\r\n1\r\nget user:1\r\ndelete user:1\r\ndelete user:1\r\nget none\r\nstats detail off\r\nget user:1\r\nstats detail dump\r\n",
        "RESET\r\nEND\r\nOK\r\nEND\r\nSTORED\r\nVALUE user:1 0 1\r\n1\r\nEND\r\nDELETED\r\nNOT_FOUND\r\nEND\r\nOK\r\nEND\r\nPREFIX user get 2 hit 1 set 1 del 2\r\nEND\r\n",
    ),
    ours(
        "stats detail counts meta commands too",
        "stats reset\r\nstats detail on\r\nms job:1 1\r\nx\r\nmg job:1\r\nmg job:2\r\nmd job:1\r\nstats detail off\r\nstats detail dump\r\n",
        "RESET\r\nOK\r\nHD\r\nHD\r\nEN\r\nHD\r\nOK\r\nPREFIX job get 2 hit 1 set 1 del 1\r\nEND\r\n",
    ),
    same(
        "stats cachedump",
        "set b 3 0 2\r\nhi\r\nstats cachedump\r\nstats cachedump 1\r\nstats cachedump x 1\r\nstats cachedump 500 1\r\nstats cachedump 2 1\r\nstats cachedump 2 1 x\r\n",
        "STORED\r\nCLIENT_ERROR bad command line\r\nCLIENT_ERROR bad command line\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR Illegal slab id\r\nEND\r\nEND\r\n",
    ),
    same(
        "small groups of statistics",
        "stats sizes\r\nstats extstore\r\nstats foo\r\nstats reset\r\n",
        "STAT sizes_status disabled\r\nEND\r\nEND\r\nERROR\r\nRESET\r\n",
    ),
    same("watch knows some words", "watch fetchers foo\r\n", "ERROR\r\n"),
    ours(
        "watch is checked, also behind other commands",
        "watch foo\r\nwatch Fetchers\r\nwatch fetchers noreply\r\nget a\r\nwatch\r\nget a\r\nfoo\r\n",
        "ERROR\r\nERROR\r\nERROR\r\nEND\r\nOK\r\n",
    ),
    same("who watches says nothing any more", "watch\r\nget a\r\nfoo\r\n", "OK\r\n"),
    same(
        "every kind of line can be asked for",
        "watch rawcmds evictions  sysevents rawcmds\r\nset a 0 0 1\r\n1\r\n",
        "OK\r\n",
    ),
    ours(
        "the memory of a store that is no cache is fixed while it is open",
        "cache_memlimit 64\r\ncache_memlimit 64 noreply\r\nmn\r\n",
        "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\nMN\r\n",
    ),
    ours(
        "there are no slab classes and no lists to tune",
        "slabs reassign 1 2\r\nslabs automove 1\r\nslabs automove ratio 0.8\r\nslabs automove 1 2\r\nlru mode segmented\r\nlru tune 10 25 0.1 2.0\r\nlru temp_ttl 60\r\n",
        "CLIENT_ERROR slab reassignment disabled\r\nCLIENT_ERROR slab reassignment disabled\r\nCLIENT_ERROR slab reassignment disabled\r\nCLIENT_ERROR slab reassignment disabled\r\nERROR lru mode not available\r\nERROR lru mode not available\r\nERROR lru mode not available\r\n",
    ),
    ours(
        "the crawler has nothing left to do",
        "lru_crawler enable\r\nlru_crawler crawl all\r\nlru_crawler crawl 1,2\r\nlru_crawler disable\r\n",
        "OK\r\nOK\r\nOK\r\nOK\r\n",
    ),
    ours(
        "sizes are not counted",
        "stats sizes_enable\r\nstats sizes_disable\r\n",
        "STAT sizes_status error\r\nSTAT sizes_error sizes_are_not_counted\r\nEND\r\nSTAT sizes_status disabled\r\nEND\r\n",
    ),
    ours(
        "cachedump lists the first records, but for keys that a line cannot hold",
        "set b 3 0 2\r\nhi\r\nms AAo= 1 b\r\nx\r\nstats cachedump 1 10\r\nstats cachedump 1 0\r\n",
        "STORED\r\nHD\r\nITEM b [2 b; 0 s]\r\nEND\r\nITEM b [2 b; 0 s]\r\nEND\r\n",
    ),
    ours(
        "mgdump lists every record as a meta get",
        "set b 3 100 2\r\nhi\r\nms AAo= 1 b\r\nx\r\nlru_crawler mgdump all\r\nlru_crawler mgdump x\r\n",
        "STORED\r\nHD\r\nmg AAo= b\r\nmg b\r\nEN\r\nBADCLASS invalid class id\r\n",
    ),
    ours(
        "metadump of a class that is none",
        "lru_crawler metadump x\r\nlru_crawler metadump 500\r\n",
        "BADCLASS invalid class id\r\nBADCLASS invalid class id\r\n",
    ),
    ours(
        "metadump lists every record, also behind other commands",
        "set b 3 100 2\r\nhi\r\nms AAo= 1 b\r\nx\r\nmg AAo= b\r\nset d 0 -1 1\r\n1\r\nlru_crawler metadump all\r\nmn\r\n",
        "STORED\r\nHD\r\nHD\r\nSTORED\r\nkey=%00%0A exp=-1 la=# cas=# fetch=yes cls=1 size=3\nkey=b exp=# la=# cas=# fetch=no cls=1 size=3\nEND\r\nMN\r\n",
    ),
];
