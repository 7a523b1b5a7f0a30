// SPDX-License-Identifier: Apache-2.0

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
	fetchTime    = time.Minute      // for the whole fetch
	headTime     = 20 * time.Second // until the server begins to answer
	mostBytes    = 128 << 20        // of a body, before and after decompression
	mostSigned   = 16 << 10         // the largest size of a signature
	mostRedirect = 5
	longestWait  = 7 * 24 * time.Hour // the longest wait that a server can ask for
	wholeAfter   = 7 * 24 * time.Hour // the time in which a server may confirm a copy without sending its body
	mostTag      = 256                // bytes of an entity tag
)

// agent identifies the client, so that publishers of lists know whom to contact.
const agent = "floodwall (+https://github.com/floodwall/floodwall)"

// Fetcher fetches lists. Its zero value has the limits above.
type Fetcher struct {
	Agent string        // the User-Agent header; "" is floodwall and the address of the project
	Time  time.Duration // for the whole fetch; 0 is a minute
	Bytes int64         // the largest size of a body; 0 is 128 MiB

	// Inside reports whether an address is internal. A redirect from a public server must not lead to an internal address. If Inside is nil, all
	// addresses that are not routed on the Internet are internal.
	Inside func(netip.Addr) bool

	// Drops returns the name of the rule by which this host itself drops a packet. It returns "" if no rule does. get calls it with the expected
	// answer of a server that has not answered. nil: it is unknown whether this host drops the packet.
	Drops func(ctx context.Context, answer packet.Spec) (rule string)
}

// body is the answer of a server.
type body struct {
	data           []byte // the content, after removal of the transfer encoding
	etag, modified string
	fresh          bool // the known copy is still current; the other fields are empty
}

// A FetchError is the reason why a list was not fetched.
type FetchError struct {
	URL, Why string        // URL is in the form that Shown returns
	Answered bool          // the server has answered
	Wait     time.Duration // the time for which the server asks the client to wait
}

func (e *FetchError) Error() string { return fmt.Sprintf("%s: %s", e.URL, e.Why) }

// get fetches a URL. If the server answers that the content with this entity tag or modification time is unchanged, fresh is set in the result.
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

// entityTag returns the entity tag of an answer (RFC 9110, 8.8.3). It returns "" if the tag is so long that servers would reject requests with it.
func entityTag(h http.Header) string {
	if tag := h.Get("ETag"); len(tag) <= mostTag {
		return tag
	}
	return ""
}

// lastModified returns the Last-Modified time of an answer (RFC 9110, 8.8.2). It returns "" if there is none, or if the time is in the future. With a
// future time, a server that only compares times would answer until then that nothing has changed.
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

// retryAfter returns the time for which a server asks the client to wait (RFC 9110, 10.2.3). It returns 0 if the server does not ask, or if the value
// cannot be parsed.
func retryAfter(h http.Header) (wait time.Duration) {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		wait = time.Duration(min(seconds, int(longestWait/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = time.Until(at)
	}
	return max(0, min(wait, longestWait))
}

// An insideError is the error that a redirect leads to an internal address.
type insideError struct{ addr netip.Addr }

func (e *insideError) Error() string {
	return fmt.Sprintf("it redirects to %s, an address that is not routed on the Internet", e.addr)
}

// client returns an HTTP client for one fetch. It connects only to addresses that it has resolved and checked. So a name cannot get another address
// between the check and the connection. After a connection to a public address, the client does not connect to an internal address. It stores the
// address of each connection in asked.
func (f *Fetcher) client(asked *netip.AddrPort) *http.Client {
	inside := f.Inside
	if inside == nil {
		inside = notRouted
	}
	outside := false // needs no mutex, because a fetch makes one connection after the other
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
			to.Header.Del("Referer") // it contains the complete previous URL, perhaps with a key
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

// notRouted reports whether an address is not routed on the Internet.
func notRouted(a netip.Addr) bool {
	for _, p := range packet.Bogons {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// unpack decompresses a body that is a gzip file. An HTTP transport only undoes the compression of the transfer.
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

// Shown returns a URL without its query, which often contains a key. Messages and other users of the host get this form.
func Shown(address string) string {
	if before, _, found := strings.Cut(address, "?"); found {
		return before + "?…"
	}
	return address
}

// hostOf returns the host of a URL, for messages.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil {
		return strings.TrimPrefix(u.Hostname(), "www.")
	}
	return address
}
