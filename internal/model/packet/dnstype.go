// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"strconv"
	"strings"
)

// DNSTypes maps the mnemonics of record and query types to their numbers (IANA, Domain Name System Parameters, in 2025).
var DNSTypes = map[string]uint32{
	"A": 1, "NS": 2, "MD": 3, "MF": 4, "CNAME": 5, "SOA": 6, "MB": 7, "MG": 8, "MR": 9, "NULL": 10, "WKS": 11,
	"PTR": 12, "HINFO": 13, "MINFO": 14, "MX": 15, "TXT": 16, "RP": 17, "AFSDB": 18, "X25": 19, "ISDN": 20, "RT": 21,
	"NSAP": 22, "NSAP-PTR": 23, "SIG": 24, "KEY": 25, "PX": 26, "GPOS": 27, "AAAA": 28, "LOC": 29, "NXT": 30, "EID": 31,
	"NIMLOC": 32, "SRV": 33, "ATMA": 34, "NAPTR": 35, "KX": 36, "CERT": 37, "A6": 38, "DNAME": 39, "SINK": 40,
	"OPT": 41, "APL": 42, "DS": 43, "SSHFP": 44, "IPSECKEY": 45, "RRSIG": 46, "NSEC": 47, "DNSKEY": 48, "DHCID": 49,
	"NSEC3": 50, "NSEC3PARAM": 51, "TLSA": 52, "SMIMEA": 53, "HIP": 55, "NINFO": 56, "RKEY": 57, "TALINK": 58,
	"CDS": 59, "CDNSKEY": 60, "OPENPGPKEY": 61, "CSYNC": 62, "ZONEMD": 63, "SVCB": 64, "HTTPS": 65, "DSYNC": 66,
	"HHIT": 67, "BRID": 68, "SPF": 99, "UINFO": 100, "UID": 101, "GID": 102, "UNSPEC": 103, "NID": 104, "L32": 105,
	"L64": 106, "LP": 107, "EUI48": 108, "EUI64": 109, "NXNAME": 128, "TKEY": 249, "TSIG": 250, "IXFR": 251,
	"AXFR": 252, "MAILB": 253, "MAILA": 254, "ANY": 255, "URI": 256, "CAA": 257, "AVC": 258, "DOA": 259,
	"AMTRELAY": 260, "RESINFO": 261, "WALLET": 262, "CLA": 263, "IPN": 264, "TA": 32768, "DLV": 32769,
}

var dnsTypeNames = func() map[uint32]string {
	names := map[uint32]string{}
	for name, n := range DNSTypes {
		names[n] = name
	}
	return names
}()

// ParseDNSType parses a DNS type: a mnemonic in upper or lower case, a number, or TYPE and a number (RFC 3597).
func ParseDNSType(text string) (uint16, error) {
	name := strings.ToUpper(text)
	if n, known := DNSTypes[name]; known {
		return uint16(n), nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(name, "TYPE"), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q: want a type of DNS records, as A, TXT or ANY, or its number from 0 to 65535", text)
	}
	return uint16(n), nil
}

// DNSTypeText returns the mnemonic of a type, or its number if it has no mnemonic.
func DNSTypeText(n uint16) string {
	if name, known := dnsTypeNames[uint32(n)]; known {
		return name
	}
	return strconv.Itoa(int(n))
}
