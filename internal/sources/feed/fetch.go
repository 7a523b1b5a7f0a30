package feed

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/os/remote"
)

// The limits of a fetch.
const (
	fetchTime    = time.Minute      // for all of it
	headTime     = 20 * time.Second // until the server answers
	mostBytes    = 128 << 20        // of a body, also of what it unpacks to
	mostSigned   = 16 << 10         // of a signature
	mostRedirect = 5
	longestWait  = 7 * 24 * time.Hour // that a server can ask for
	wholeAfter   = 7 * 24 * time.Hour // in which a copy may be confirmed without its body
	mostTag      = 256                // bytes of an entity tag
)

// agent says who asks, so that those who publish lists can tell whom to write to.
const agent = "floodwall (+https://github.com/floodwall/floodwall)"

// Fetcher fetches lists. Its zero value has the limits above.
type Fetcher struct {
	Agent string        // of the User-Agent header; "" is floodwall and the address of the project
	Time  time.Duration // for all of a fetch; 0 is a minute
	Bytes int64         // of a body; 0 is 128 MiB

	// Inside reports whether an address is one that no redirect from outside may lead to; nil: all that are not routed on the
	// Internet.
	Inside func(netip.Addr) bool

	// Drops says by which rule this host itself drops a packet, "" when by none; nil: nobody knows. It is asked about the answer of a server
	// that does not answer.
	Drops func(ctx context.Context, answer packet.Spec) (rule string)
}

// body is what a server has sent.
type body struct {
	data           []byte // as it was sent, but for the encoding of the transport
	etag, modified string
	fresh          bool // what was known already is still it; the rest is empty
}

// A FetchError says why a list was not fetched.
type FetchError struct {
	URL, Why string        // the URL as Shown has it
	Answered bool          // the server was reached and has answered
	Wait     time.Duration // that it asks for
}

func (e *FetchError) Error() string { return fmt.Sprintf("%s: %s", e.URL, e.Why) }

// get fetches a URL, unless what was known of it by these headers has not changed.
func (f *Fetcher) get(ctx context.Context, address, etag, modified string, most int64) (*body, error) {
	ctx, cancel := context.WithTimeout(ctx, orDefault(f.Time, fetchTime))
	defer cancel()
	fail := func(answered bool, format string, args ...any) error {
		return &FetchError{URL: Shown(address), Why: fmt.Sprintf(format, args...), Answered: answered}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fail(true, "%v", err)
	}
	request.Header.Set("User-Agent", orDefault(f.Agent, agent))
	for name, value := range map[string]string{"If-None-Match": etag, "If-Modified-Since": modified} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	var asked netip.AddrPort
	client := f.client(&asked)
	defer client.CloseIdleConnections()
	answer, err := client.Do(request)
	if err != nil {
		var inside *insideError
		return nil, fail(errors.As(err, &inside), "%s%s", remote.Why(err), f.ownDrop(ctx, err, asked))
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusNotModified && etag+modified != "":
		return &body{fresh: true}, nil
	case answer.StatusCode != http.StatusOK:
		err := &FetchError{URL: Shown(address), Why: "the server answers " + remote.Status(answer.StatusCode), Answered: true, Wait: retryAfter(answer.Header)}
		return nil, err
	case answer.ContentLength > most:
		return nil, fail(true, "the body has %d bytes, and at most %d are read", answer.ContentLength, most)
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err != nil {
		return nil, fail(false, "the body ended early, after %d bytes: %s", len(data), remote.Why(err))
	}
	if int64(len(data)) > most {
		return nil, fail(true, "the body has more than %d bytes", most)
	}
	return &body{data: data, etag: entityTag(answer.Header), modified: lastModified(answer.Header)}, nil
}

// entityTag is the tag of an answer (RFC 9110, 8.8.3), "" when it is so long that servers would refuse every request with it.
func entityTag(h http.Header) string {
	if tag := h.Get("ETag"); len(tag) <= mostTag {
		return tag
	}
	return ""
}

// lastModified is the time of an answer (RFC 9110, 8.8.2), "" when it has none, or one to come: servers that only compare would answer until
// then that nothing has changed.
func lastModified(h http.Header) string {
	text := h.Get("Last-Modified")
	if at, err := http.ParseTime(text); err != nil || ahead(at, time.Now()) {
		return ""
	}
	return text
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// retryAfter is what a server asks to wait (RFC 9110, 10.2.3), 0 when it asks for nothing that can be read.
func retryAfter(h http.Header) (wait time.Duration) {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		wait = time.Duration(min(seconds, int(longestWait/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = time.Until(at)
	}
	return max(0, min(wait, longestWait))
}

// An insideError says that a redirect leads to an address which is not for the public.
type insideError struct{ addr netip.Addr }

func (e *insideError) Error() string {
	return fmt.Sprintf("it redirects to %s, an address that is not routed on the Internet", e.addr)
}

// client is a client for one fetch. It connects to the addresses that it has looked up and checked: a name cannot mean
// another one in between. Once it was at a public address, it does not connect to any other. asked becomes the address that it connects to.
func (f *Fetcher) client(asked *netip.AddrPort) *http.Client {
	inside := f.Inside
	if inside == nil {
		inside = notRouted
	}
	outside := false // a fetch makes one connection after the other
	dialer := &net.Dialer{Timeout: headTime, FallbackDelay: -1, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		*asked = to
		addr := to.Addr().Unmap().WithZone("")
		if inside(addr) {
			if outside {
				return &insideError{addr}
			}
			return nil
		}
		outside = true
		return nil
	}}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ResponseHeaderTimeout: headTime, TLSHandshakeTimeout: headTime,
			MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true,
		},
		CheckRedirect: func(to *http.Request, via []*http.Request) error {
			to.Header.Del("Referer") // it has the whole address before, and perhaps a key in it
			switch {
			case len(via) > mostRedirect:
				return fmt.Errorf("it redirects more than %d times", mostRedirect)
			case via[0].URL.Scheme == "https" && to.URL.Scheme != "https":
				return errors.New("it redirects from https to " + to.URL.Scheme)
			}
			return nil
		},
	}
}

// notRouted reports whether an address is not one of the Internet.
func notRouted(a netip.Addr) bool {
	for _, p := range packet.Bogons {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// unpack unpacks a body that is a gzip file: transports unpack only what they packed.
func unpack(data []byte, most int64) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(r, most+1))
	}
	if err != nil {
		return nil, &BodyError{fmt.Sprintf("the gzip file cannot be unpacked: %v", err), ""}
	}
	if int64(len(data)) > most {
		return nil, &BodyError{fmt.Sprintf("the gzip file unpacks to more than %d bytes", most), ""}
	}
	return data, nil
}

// Shown is a URL for messages and for other users of the host: without its query, which often holds a key.
func Shown(address string) string {
	if before, _, found := strings.Cut(address, "?"); found {
		return before + "?…"
	}
	return address
}

// hostOf is the host of a URL, for messages.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil {
		return strings.TrimPrefix(u.Hostname(), "www.")
	}
	return address
}
