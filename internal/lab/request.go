// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Request is a request of clients. The zero value is GET / in HTTP/1.1.
type Request struct {
	Method string      // "": GET. No request has a body.
	Target string      // path and query; "": /
	Host   string      // for the header of that name; "": the server's address
	Header http.Header // further headers
	HTTP10 bool        // HTTP/1.0 in place of 1.1
}

// bytes returns the request as it is sent.
func (r Request) bytes(server netip.AddrPort, keepAlive bool) ([]byte, error) {
	method, target, host := orElse(r.Method, http.MethodGet), orElse(r.Target, "/"), orElse(r.Host, server.String())
	for _, word := range []string{method, target, host} {
		if strings.ContainsFunc(word, isControl) || strings.Contains(word, " ") {
			return nil, fmt.Errorf("request: %q must not contain spaces or control characters", word)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\r\nHost: %s\r\n", method, target, choose(r.HTTP10, "HTTP/1.0", "HTTP/1.1"), host)
	if r.HTTP10 == keepAlive { // otherwise it is the default of the version (RFC 9112, 9.3)
		fmt.Fprintf(&b, "Connection: %s\r\n", choose(keepAlive, "keep-alive", "close"))
	}
	for name, values := range r.Header {
		for _, v := range values {
			if !isToken(name) || strings.ContainsFunc(v, isControl) {
				return nil, fmt.Errorf("request: header %q: %q is not a name and a value", name, v)
			}
			fmt.Fprintf(&b, "%s: %s\r\n", name, v)
		}
	}
	b.WriteString("\r\n")
	return b.Bytes(), nil
}

// isToken reports whether text can be the name of a header (RFC 9110, 5.6.2).
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

func orElse(text, instead string) string { return choose(text != "", text, instead) }

func choose(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}
