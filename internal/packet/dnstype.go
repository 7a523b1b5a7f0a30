package packet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// dnsTypes are the mnemonics of record and query types (IANA, Domain Name System Parameters, in 2025).
var dnsTypes = map[uint16]string{
	1: "A", 2: "NS", 3: "MD", 4: "MF", 5: "CNAME", 6: "SOA", 7: "MB", 8: "MG", 9: "MR", 10: "NULL", 11: "WKS", 12: "PTR",
	13: "HINFO", 14: "MINFO", 15: "MX", 16: "TXT", 17: "RP", 18: "AFSDB", 19: "X25", 20: "ISDN", 21: "RT", 22: "NSAP",
	23: "NSAP-PTR", 24: "SIG", 25: "KEY", 26: "PX", 27: "GPOS", 28: "AAAA", 29: "LOC", 30: "NXT", 31: "EID", 32: "NIMLOC",
	33: "SRV", 34: "ATMA", 35: "NAPTR", 36: "KX", 37: "CERT", 38: "A6", 39: "DNAME", 40: "SINK", dnsTypeOPT: "OPT", 42: "APL",
	43: "DS", 44: "SSHFP", 45: "IPSECKEY", 46: "RRSIG", 47: "NSEC", 48: "DNSKEY", 49: "DHCID", 50: "NSEC3", 51: "NSEC3PARAM",
	52: "TLSA", 53: "SMIMEA", 55: "HIP", 56: "NINFO", 57: "RKEY", 58: "TALINK", 59: "CDS", 60: "CDNSKEY", 61: "OPENPGPKEY",
	62: "CSYNC", 63: "ZONEMD", 64: "SVCB", 65: "HTTPS", 66: "DSYNC", 67: "HHIT", 68: "BRID", 99: "SPF", 100: "UINFO",
	101: "UID", 102: "GID", 103: "UNSPEC", 104: "NID", 105: "L32", 106: "L64", 107: "LP", 108: "EUI48", 109: "EUI64",
	128: "NXNAME", 249: "TKEY", 250: "TSIG", 251: "IXFR", 252: "AXFR", 253: "MAILB", 254: "MAILA", 255: "ANY", 256: "URI",
	257: "CAA", 258: "AVC", 259: "DOA", 260: "AMTRELAY", 261: "RESINFO", 262: "WALLET", 263: "CLA", 264: "IPN",
	32768: "TA", 32769: "DLV",
}

var dnsTypeNumbers = func() map[string]uint16 {
	numbers := map[string]uint16{}
	for n, name := range dnsTypes {
		numbers[name] = n
	}
	return numbers
}()

// ParseDNSType reads a type by its mnemonic, in either case, or its number, which may stand behind TYPE (RFC 3597).
func ParseDNSType(text string) (uint16, error) {
	name := strings.ToUpper(text)
	if n, known := dnsTypeNumbers[name]; known {
		return n, nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(name, "TYPE"), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q: want a type of DNS records, as A, TXT or ANY, or its number from 0 to 65535", text)
	}
	return uint16(n), nil
}

// DNSTypeText is the mnemonic of a type, or its number.
func DNSTypeText(n uint16) string {
	if name, known := dnsTypes[n]; known {
		return name
	}
	return strconv.Itoa(int(n))
}

// DNSTypeNames are all mnemonics that ParseDNSType knows, in the order of their numbers.
func DNSTypeNames() []string {
	var numbers []uint16
	for n := range dnsTypes {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	var names []string
	for _, n := range numbers {
		names = append(names, dnsTypes[n])
	}
	return names
}
