// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
)

// ParseContent parses the notation of content in Snort: text in which parts between bars are hexadecimal, as in "GET |0d 0a|". Blanks between bars
// are ignored. A bar itself is written |7c|.
func ParseContent(text string) ([]byte, error) {
	var b []byte
	for text != "" {
		plain, rest, barred := strings.Cut(text, "|")
		b = append(b, plain...)
		if !barred {
			break
		}
		digits, after, closed := strings.Cut(rest, "|")
		if !closed {
			return nil, fmt.Errorf("%q: the closing | is missing; a | itself is written |7c|", "|"+rest)
		}
		raw, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil || len(raw) == 0 {
			return nil, fmt.Errorf("%q: want pairs of hex digits, as |0d 0a|", "|"+digits+"|")
		}
		b, text = append(b, raw...), after
	}
	return b, nil
}

// ContentText returns bytes in the notation of ParseContent: bars, and bytes that are not printable ASCII, in hexadecimal.
func ContentText(b []byte) string {
	var text strings.Builder
	for len(b) > 0 {
		n := 0
		for n < len(b) && isPlain(b[n]) {
			n++
		}
		text.Write(b[:n])
		b = b[n:]
		for n = 0; n < len(b) && !isPlain(b[n]); n++ {
			text.WriteByte("| "[min(n, 1)])
			text.WriteString(hex.EncodeToString(b[n : n+1]))
		}
		if n > 0 {
			text.WriteByte('|')
		}
		b = b[n:]
	}
	return text.String()
}

// LowerASCII returns b with its ASCII letters in lower case. It changes no other byte, unlike a conversion of Unicode text.
func LowerASCII(b []byte) []byte {
	out := bytes.Clone(b)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}

func isPlain(c byte) bool { return c >= ' ' && c <= '~' && c != '|' }
