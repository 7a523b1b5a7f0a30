package policy

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

const contentForm = `text, with octets in hexadecimal between bars, as in "GET |0d 0a|"`

// content reads text that is compared with packets.
func content(text string) ([]byte, *flaw) {
	octets, err := packet.ParseContent(text)
	if err != nil {
		return nil, contentHint(want(contentForm, text), text)
	}
	return octets, nil
}

// contentHint explains what packet.ParseContent refused.
func contentHint(f *flaw, text string) *flaw {
	parts := strings.Split(text, "|")
	if len(parts)%2 == 0 {
		octets, ok := bareHex(strings.Trim(text, "|"))
		if ok && (strings.HasPrefix(text, "|") || strings.HasSuffix(text, "|")) {
			return f.hintf("a | stands on both sides of hexadecimal: %s", bars(octets))
		}
		return f.hintf("close the hexadecimal with a |, or write |7c| for a bar")
	}
	for i := 1; ; i += 2 { // one of the parts between bars is not as it must be
		if _, err := packet.ParseContent("|" + parts[i] + "|"); err != nil {
			return hexHint(f, parts[i])
		}
	}
}

// hexHint explains a part between bars that is not hexadecimal.
func hexHint(f *flaw, part string) *flaw {
	octets, ok := bareHex(part)
	switch {
	case strings.TrimSpace(part) == "":
		return f.hintf("put octets between the bars, or write |7c| for a bar")
	case ok:
		return f.hintf("write %s", bars(octets))
	case strings.Trim(part, "0123456789abcdefABCDEF ") == "":
		return f.hintf("each octet has two digits, as in |0a|")
	}
	return f.hintf("between bars stand hexadecimal digits only; write |7c| for a bar")
}

// bareHex reads octets in the ways in which other tools write hexadecimal.
func bareHex(text string) (octets []byte, ok bool) {
	clean := strings.NewReplacer("0x", "", "0X", "", `\x`, "", ",", "", ":", "", "-", "", " ", "").Replace(text)
	octets, err := hex.DecodeString(clean)
	return octets, err == nil && len(octets) > 0
}

// bars is the policy's form of octets, all of them in hexadecimal.
func bars(octets []byte) string { return fmt.Sprintf(`"|% x|"`, octets) }

// sized is a reader of content of at least one and at most so many octets.
func sized(most int) func(string) ([]byte, *flaw) {
	return func(text string) ([]byte, *flaw) {
		octets, f := content(text)
		switch {
		case f != nil:
			return nil, f
		case len(octets) == 0:
			return nil, (&flaw{msg: "is empty"}).hintf("without the key, every packet matches")
		case len(octets) > most:
			f := &flaw{msg: fmt.Sprintf("must have at most %d octets, got %d, %s", most, len(octets), quote(text))}
			return nil, f.hintf("a part of it will do: take the one that is rarest elsewhere")
		}
		return octets, nil
	}
}
