package policy

import "strings"

// dnsTypes are the types that queries ask for (IANA, Domain Name System Parameters, Resource Record TYPEs).
var dnsTypes = map[string]uint32{
	"A": 1, "NS": 2, "MD": 3, "MF": 4, "CNAME": 5, "SOA": 6, "MB": 7, "MG": 8, "MR": 9, "NULL": 10, "WKS": 11,
	"PTR": 12, "HINFO": 13, "MINFO": 14, "MX": 15, "TXT": 16, "RP": 17, "AFSDB": 18, "X25": 19, "ISDN": 20, "RT": 21,
	"NSAP": 22, "NSAP-PTR": 23, "SIG": 24, "KEY": 25, "PX": 26, "GPOS": 27, "AAAA": 28, "LOC": 29, "NXT": 30,
	"EID": 31, "NIMLOC": 32, "SRV": 33, "ATMA": 34, "NAPTR": 35, "KX": 36, "CERT": 37, "A6": 38, "DNAME": 39,
	"SINK": 40, "OPT": 41, "APL": 42, "DS": 43, "SSHFP": 44, "IPSECKEY": 45, "RRSIG": 46, "NSEC": 47, "DNSKEY": 48,
	"DHCID": 49, "NSEC3": 50, "NSEC3PARAM": 51, "TLSA": 52, "SMIMEA": 53, "HIP": 55, "NINFO": 56, "RKEY": 57,
	"TALINK": 58, "CDS": 59, "CDNSKEY": 60, "OPENPGPKEY": 61, "CSYNC": 62, "ZONEMD": 63, "SVCB": 64, "HTTPS": 65,
	"DSYNC": 66, "SPF": 99, "UINFO": 100, "UID": 101, "GID": 102, "UNSPEC": 103, "NID": 104, "L32": 105, "L64": 106,
	"LP": 107, "EUI48": 108, "EUI64": 109, "NXNAME": 128, "TKEY": 249, "TSIG": 250, "IXFR": 251, "AXFR": 252,
	"MAILB": 253, "MAILA": 254, "ANY": 255, "URI": 256, "CAA": 257, "AVC": 258, "DOA": 259, "AMTRELAY": 260,
	"RESINFO": 261, "WALLET": 262, "CLA": 263, "IPN": 264, "TA": 32768, "DLV": 32769,
}

const maxType = 65535

// dnsType reads a type by its mnemonic or number, or a range of numbers.
func dnsType(text string) ([]Range, *flaw) {
	if n, ok := dnsTypes[text]; ok {
		return []Range{{n, n}}, nil
	}
	r, f := span(text, "a DNS type such as ANY or TXT, a number or range from 0 to 65535", maxType)
	if f == nil || f.hint != "" {
		return one(r, f)
	}
	upper := strings.ToUpper(text)
	number, generic := strings.CutPrefix(upper, "TYPE")
	switch near := nearest(text, sorted(dnsTypes)); {
	case text == "*" || upper == "ALL":
		f.hintf("the type that asks for all is ANY")
	case dnsTypes[upper] != 0:
		f.hintf("write %s", upper)
	case generic && isDigits(number):
		f.hintf("write %s", number)
	case near != "":
		f.hintf("did you mean %q?", near)
	}
	return nil, f
}
