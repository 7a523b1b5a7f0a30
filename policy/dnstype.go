// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
)

const maxType = 65535

var dnsTypeSchema = define("dnsType", rangesTo(maxType, enumOf(packet.DNSTypes)).
	titled("DNS type").described("A type by name or number, or a range."))

// dnsType parses a DNS type by its mnemonic or number, or a range of numbers.
func dnsType(text string) ([]Range, *flaw) {
	if n, ok := packet.DNSTypes[text]; ok {
		return []Range{{n, n}}, nil
	}
	r, f := span(text, "a DNS type such as ANY or TXT, a number or range from 0 to 65535", maxType)
	if f == nil || f.hint != "" {
		return one(r, f)
	}
	meant, err := packet.ParseDNSType(text)
	switch near := wording.Nearest(text, sorted(packet.DNSTypes)); {
	case text == "*" || strings.EqualFold(text, "ALL"):
		f.hintf("the type that asks for all is ANY")
	case err == nil:
		f.hintf("write %s", packet.DNSTypeText(meant))
	case near != "":
		f.hintf("did you mean %q?", near)
	}
	return nil, f
}
