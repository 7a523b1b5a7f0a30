// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
)

const contentForm = `text, with bytes in hexadecimal between bars, as in "GET |0d 0a|"`

var contentSchema = func() *schema {
	s := bare(`^[^|]*(\|[0-9A-Fa-f ]+\|[^|]*)*$`)
	s.MinLength = 1
	return define("content", s.titled("text").described("Text, with bytes in hexadecimal between bars.").withExamples(`"evil.example", "|ff ff|T"`))
}()

// content parses text that is compared with packets.
func content(text string) ([]byte, *flaw) {
	content, err := packet.ParseContent(text)
	if err != nil {
		return nil, contentHint(want(contentForm, text), text)
	}
	return content, nil
}

// contentHint adds a hint to the flaw of a text that packet.ParseContent rejects.
func contentHint(f *flaw, text string) *flaw {
	parts := strings.Split(text, "|")
	if len(parts)%2 == 0 {
		content, ok := bareHex(strings.Trim(text, "|"))
		if ok && (strings.HasPrefix(text, "|") || strings.HasSuffix(text, "|")) {
			return f.hintf("a | stands on both sides of hexadecimal: %s", bars(content))
		}
		return f.hintf("close the hexadecimal with a |, or write |7c| for a bar")
	}
	for i := 1; ; i += 2 { // ParseContent rejects at least one of the parts between bars
		if _, err := packet.ParseContent("|" + parts[i] + "|"); err != nil {
			return hexHint(f, parts[i])
		}
	}
}

// hexHint adds a hint about a part between bars that is not hexadecimal.
func hexHint(f *flaw, part string) *flaw {
	content, ok := bareHex(part)
	switch {
	case strings.TrimSpace(part) == "":
		return f.hintf("put bytes between the bars, or write |7c| for a bar")
	case ok:
		return f.hintf("write %s", bars(content))
	case strings.Trim(part, "0123456789abcdefABCDEF ") == "":
		return f.hintf("each byte has two digits, as in |0a|")
	}
	return f.hintf("between bars stand hexadecimal digits only; write |7c| for a bar")
}

// bareHex parses bytes in the hexadecimal notations of other tools, such as 0x0a or \x0a. ok is false if the text has no such notation.
func bareHex(text string) (content []byte, ok bool) {
	clean := strings.NewReplacer("0x", "", "0X", "", `\x`, "", ",", "", ":", "", "-", "", " ", "").Replace(text)
	content, err := hex.DecodeString(clean)
	return content, err == nil && len(content) > 0
}

// bars returns bytes in the policy's notation, all in hexadecimal.
func bars(content []byte) string { return fmt.Sprintf(`"|% x|"`, content) }

// sized returns a parser of content with at least one and at most most bytes.
func sized(most int) func(string) ([]byte, *flaw) {
	return func(text string) ([]byte, *flaw) {
		content, f := content(text)
		switch {
		case f != nil:
			return nil, f
		case len(content) == 0:
			return nil, (&flaw{msg: "is empty"}).hintf("without the key, every packet matches")
		case len(content) > most:
			f := &flaw{msg: fmt.Sprintf("must have at most %d bytes, got %d, %s", most, len(content), wording.Quote(text))}
			return nil, f.hintf("a part of it will do: take the one that is rarest elsewhere")
		}
		return content, nil
	}
}
