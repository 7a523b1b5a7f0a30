// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// ParseTarget parses the URL of a web server, http or https. Its errors have the type wording.Error.
func ParseTarget(address string) (*url.URL, error) {
	hint := "write it as http://192.0.2.1:8080/path or https://example.org/"
	u, err := url.Parse(address)
	switch {
	case !strings.Contains(address, "://"):
		return nil, wording.Errorf(fmt.Sprintf("did you mean http://%s ?", address), "%q is not a URL: http:// or https:// is missing", address)
	case err != nil:
		return nil, wording.Errorf(hint, "%q is not a URL: %v", address, err.(*url.Error).Err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, wording.Errorf(hint, "%q: cannot speak %q, only http and https", address, u.Scheme)
	case u.Hostname() == "":
		return nil, wording.Errorf(hint, "%q: no host", address)
	case u.User != nil:
		return nil, wording.Errorf("give what they stand for as --header 'Authorization: ...'", "%q: user and password are not taken from a URL", u.Redacted())
	}
	if _, err := targetPort(u); err != nil {
		return nil, wording.Errorf(hint, "%q: port must be 1 to 65535, got %q", address, u.Port())
	}
	return u, nil
}

// targetPort returns the port of a URL, or the default port of its scheme.
func targetPort(u *url.URL) (uint16, error) {
	text := u.Port()
	switch {
	case text == "" && u.Scheme == "https":
		return 443, nil
	case text == "":
		return 80, nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err == nil && port == 0 {
		err = strconv.ErrRange
	}
	return uint16(port), err
}

// addHeader adds a header to a request. The header Host sets the name of the requested host.
func addHeader(r *Request, text string) error {
	name, value, ok := strings.Cut(text, ":")
	if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !ok || name == "" {
		return fmt.Errorf("%q has no name before a colon", text)
	}
	switch name = http.CanonicalHeaderKey(name); name {
	case "Host":
		r.Host = value
	case "User-Agent":
		r.Header.Set(name, value)
	case "Connection", "Content-Length", "Transfer-Encoding":
		return fmt.Errorf("the header %s is set by the command itself: leave it out", name)
	default:
		r.Header.Add(name, value)
	}
	return nil
}

// requestRate parses a rate in requests per second: 1000/s, 90/m, or a plain number; "" is 0.
func requestRate(text string) (float64, error) {
	number, per := text, 1.0
	for suffix, seconds := range map[string]float64{"/s": 1, "/m": 60} {
		if n, ok := strings.CutSuffix(text, suffix); ok {
			number, per = n, seconds
		}
	}
	rate, err := ParseRate(number)
	if err != nil || text != "" && number == "" {
		return 0, fmt.Errorf("want a positive number of requests, got %q", text)
	}
	return rate / per, nil
}

// resolve finds the server's address. If there are several, it takes the first that accepts a connection, like browsers do.
func resolve(ctx context.Context, u *url.URL) (netip.AddrPort, error) {
	port, err := targetPort(u)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return netip.AddrPortFrom(a, port), nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil || len(addrs) == 0 {
		return netip.AddrPort{}, wording.Hinted(fmt.Sprintf("host %q: no address", u.Hostname()), "an address in its place needs no name service")
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return netip.AddrPortFrom(loadAnswering(ctx, addrs, port), port), nil
}

// loadAnswering returns the first of these addresses that accepts a connection; if none does, the first of all.
func loadAnswering(ctx context.Context, addrs []netip.Addr, port uint16) netip.Addr {
	if len(addrs) == 1 {
		return addrs[0]
	}
	dialer := &net.Dialer{Timeout: time.Second}
	for _, a := range addrs {
		if conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String()); err == nil {
			conn.Close()
			return a
		}
	}
	return addrs[0]
}
