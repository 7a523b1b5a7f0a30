// SPDX-License-Identifier: Apache-2.0

package saved

import "strings"

// arity contains the number of arguments of each option of an extension.
type arity map[string]int

// extension parses a table of options: `name=2`; `name` means one argument, `name=0` none.
func extension(text string) arity {
	options := arity{}
	for word := range strings.FieldsSeq(text) {
		name, count, said := strings.Cut(word, "=")
		n := 1
		if said {
			n = int(count[0] - '0')
		}
		options["--"+name] = n
	}
	return options
}

// coreOptions maps all names of the options of iptables itself (iptables(8)) to the name that is used here.
var coreOptions = map[string]string{
	"-p": "-p", "--protocol": "-p", "--proto": "-p", "-s": "-s", "--source": "-s", "--src": "-s",
	"-d": "-d", "--destination": "-d", "--dst": "-d", "-i": "-i", "--in-interface": "-i",
	"-o": "-o", "--out-interface": "-o", "-m": "-m", "--match": "-m", "-j": "-j", "--jump": "-j",
	"-g": "-g", "--goto": "-g", "-f": "-f", "--fragments": "-f", "--fragment": "-f", "-c": "-c", "--set-counters": "-c",
	"-4": "-4", "--ipv4": "-4", "-6": "-6", "--ipv6": "-6",
	"-n": "-n", "--numeric": "-n", "-v": "-n", "--verbose": "-n", "-x": "-n", "--exact": "-n",
}

// coreArity contains the number of arguments of each name in coreOptions.
var coreArity = arity{
	"-p": 1, "-s": 1, "-d": 1, "-i": 1, "-o": 1, "-m": 1, "-j": 1, "-g": 1, "-f": 0, "-c": 2, "-4": 0, "-6": 0, "-n": 0,
}

const portOptions = "sport source-port dport destination-port "

// matchOptions are the options of the extensions that match (iptables-extensions(8)). It includes options without equivalent in the policy, because
// the parser must know where the arguments of each option end.
var matchOptions = map[string]arity{
	"addrtype": extension("src-type dst-type limit-iface-in=0 limit-iface-out=0"),
	"ah":       extension("ahspi ahlen ahres=0"), "bpf": extension("object-pinned bytecode"),
	"cgroup":    extension("path cgroup"),
	"cluster":   extension("cluster-total-nodes cluster-local-node cluster-local-nodemask cluster-hash-seed"),
	"comment":   extension("comment"),
	"condition": extension("condition"),
	"connbytes": extension("connbytes connbytes-dir connbytes-mode"),
	"connlabel": extension("label set=0"),
	"connlimit": extension("connlimit-upto connlimit-above connlimit-mask connlimit-saddr=0 connlimit-daddr=0"),
	"connmark":  extension("mark"),
	"conntrack": extension("ctstate ctproto ctorigsrc ctorigdst ctreplsrc ctrepldst ctorigsrcport ctorigdstport " +
		"ctreplsrcport ctrepldstport ctstatus ctexpire ctdir"),
	"cpu": extension("cpu"), "dccp": extension(portOptions + "dccp-types dccp-option"),
	"devgroup": extension("src-group dst-group"), "dscp": extension("dscp dscp-class"),
	"dst": extension("dst-len dst-opts"), "hbh": extension("hbh-len hbh-opts"),
	"ecn": extension("ecn-tcp-cwr=0 ecn-tcp-ece=0 ecn-ip-ect"), "esp": extension("espspi"), "eui64": extension(""),
	"frag":  extension("fragid fraglen fragres=0 fragfirst=0 fragmore=0 fraglast=0"),
	"geoip": extension("src-cc dst-cc source-country destination-country"),
	"hashlimit": extension("hashlimit-upto hashlimit-above hashlimit hashlimit-burst hashlimit-mode hashlimit-srcmask " +
		"hashlimit-dstmask hashlimit-name hashlimit-htable-size hashlimit-htable-max hashlimit-htable-expire " +
		"hashlimit-htable-gcinterval hashlimit-rate-match=0 hashlimit-rate-interval"),
	"helper": extension("helper"), "hl": extension("hl-eq hl-lt hl-gt"),
	"icmp": extension("icmp-type"), "icmp6": extension("icmpv6-type"), "icmpv6": extension("icmpv6-type"),
	"ipv6-icmp": extension("icmpv6-type"), "iprange": extension("src-range dst-range"),
	"ipv6header": extension("soft=0 header"), "ipvs": extension("ipvs=0 vproto vaddr vport vdir vmethod vportctl"),
	"layer7": extension("l7proto l7dir"), "length": extension("length"), "limit": extension("limit limit-burst"),
	"mac": extension("mac-source"), "mark": extension("mark"), "mh": extension("mh-type"),
	"multiport": extension("source-ports sports destination-ports dports ports"), "nfacct": extension("nfacct-name"),
	"osf": extension("genre ttl log"), "owner": extension("uid-owner gid-owner suppl-groups=0 socket-exists=0"),
	"physdev": extension("physdev-in physdev-out physdev-is-in=0 physdev-is-out=0 physdev-is-bridged=0"),
	"pkttype": extension("pkt-type"),
	"policy":  extension("dir pol strict=0 next=0 reqid spi proto mode tunnel-src tunnel-dst"), "quota": extension("quota"),
	"rateest": extension("rateest1 rateest2 rateest rateest-delta=0 rateest-bps rateest-pps rateest-bps1 rateest-bps2 " +
		"rateest-pps1 rateest-pps2 rateest-lt=0 rateest-gt=0 rateest-eq=0"),
	"realm":    extension("realm"),
	"recent":   extension("name set=0 rcheck=0 update=0 remove=0 seconds hitcount reap=0 rttl=0 mask rsource=0 rdest=0"),
	"rpfilter": extension("loose=0 validmark=0 accept-local=0 invert=0"),
	"rt":       extension("rt-type rt-segsleft rt-len rt-0-res=0 rt-0-addrs rt-0-not-strict=0"),
	"sctp":     extension(portOptions + "chunk-types=2"),
	"set": extension("match-set=2 return-nomatch=0 update-counters=0 update-subcounters=0 packets-eq packets-lt " +
		"packets-gt bytes-eq bytes-lt bytes-gt"),
	"socket": extension("transparent=0 nowildcard=0 restore-skmark=0"), "state": extension("state"),
	"statistic": extension("mode probability every packet"),
	"string":    extension("algo from to string hex-string icase=0"),
	"tcp":       extension(portOptions + "tcp-flags=2 syn=0 tcp-option"), "tcpmss": extension("mss"),
	"time": extension("timestart timestop datestart datestop monthdays weekdays kerneltz=0 contiguous=0 utc=0 localtz=0"),
	"tos":  extension("tos"), "ttl": extension("ttl ttl-eq ttl-lt ttl-gt"), "u32": extension("u32"),
	"udp": extension(portOptions), "udplite": extension(portOptions),
}

const markOptions = "set-mark set-xmark and-mark or-mark xor-mark "

// targetOptions are the options of targets.
var targetOptions = map[string]arity{
	"AUDIT": extension("type"), "CHECKSUM": extension("checksum-fill=0"), "CLASSIFY": extension("set-class"),
	"CONNMARK":    extension(markOptions + "save-mark=0 restore-mark=0 nfmask ctmask mask"),
	"CONNSECMARK": extension("save=0 restore=0"),
	"CT":          extension("notrack=0 helper ctevents expevents zone zone-orig zone-reply timeout"),
	"DNAT":        extension("to-destination random=0 persistent=0"), "DSCP": extension("set-dscp set-dscp-class"),
	"ECN": extension("ecn-tcp-remove=0"), "HL": extension("hl-set hl-dec hl-inc"),
	"IDLETIMER": extension("timeout label alarm=0"), "LED": extension("led-trigger-id led-delay led-always-blink=0"),
	"LOG":  extension("log-level log-prefix log-tcp-sequence=0 log-tcp-options=0 log-ip-options=0 log-uid=0 log-macdecode=0"),
	"MARK": extension(markOptions), "MASQUERADE": extension("to-ports random=0 random-fully=0"),
	"NETMAP": extension("to"), "NFLOG": extension("nflog-group nflog-prefix nflog-range nflog-size nflog-threshold"),
	"NFQUEUE": extension("queue-num queue-balance queue-bypass=0 queue-cpu-fanout=0"),
	"RATEEST": extension("rateest-name rateest-interval rateest-ewmalog"), "REDIRECT": extension("to-ports random=0"),
	"REJECT": extension("reject-with"), "SECMARK": extension("selctx"),
	"SET":      extension("add-set=2 del-set=2 map-set=2 timeout exist=0 map-mark=0 map-prio=0 map-queue=0"),
	"SNAT":     extension("to-source random=0 random-fully=0 persistent=0"),
	"SYNPROXY": extension("mss wscale sack-perm=0 timestamp=0 ecn=0"), "TARPIT": extension("tarpit=0 honeypot=0 reset=0"),
	"TCPMSS": extension("set-mss clamp-mss-to-pmtu=0"), "TCPOPTSTRIP": extension("strip-options"),
	"TEE": extension("gateway"), "TOS": extension("set-tos and-tos or-tos xor-tos"),
	"TPROXY": extension("on-port on-ip tproxy-mark"), "TTL": extension("ttl-set ttl-dec ttl-inc"),
	"ULOG": extension("ulog-nlgroup ulog-prefix ulog-cprange ulog-qthreshold"),
}
