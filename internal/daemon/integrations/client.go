// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/os/remote"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// The limits of an answer. A hundred thousand decisions take about 20 MB.
const (
	mostBytes          = 128 << 20
	mostDecisions      = 1_000_000
	mostText           = 64 // largest size of a text field of a decision, in bytes. No address, prefix, type or scope is longer; a longer reason is truncated
	crowdsecAnswerTime = 2 * time.Minute
)

// decision is a decision in an answer, in the format of the local API's /v1/decisions/stream (GetDecisionsStreamResponse of its OpenAPI document).
type decision struct {
	ID        int64  `json:"id"`
	Scenario  string `json:"scenario"`
	Scope     string `json:"scope"`
	Value     string `json:"value"`
	Type      string `json:"type"`
	Duration  string `json:"duration"` // time until the decision's end, in Go's notation; negative when the decision has ended
	Simulated bool   `json:"simulated"`
}

// answer contains the changes since the previous answer, or all decisions.
type answer struct{ fresh, deleted []decision }

// client sends requests to a local API.
type client struct {
	http *http.Client
	base string
	key  string
	of   policy.CrowdSec
}

// newClient makes a client. It reads the files that the policy names.
func newClient(of policy.CrowdSec) (c *client, err error) {
	c = &client{base: strings.TrimSuffix(of.URL, "/"), of: of}
	if of.KeyFile != "" {
		if c.key, err = safefile.Read(of.KeyFile); err != nil {
			return nil, fmt.Errorf("crowdsec: key_file: %w", err)
		}
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.MaxIdleConns, t.ResponseHeaderTimeout, t.MaxResponseHeaderBytes = nil, 1, crowdsecAnswerTime, 64<<10
	if t.TLSClientConfig, err = tlsConfig(of); err != nil {
		return nil, fmt.Errorf("crowdsec: %w", err)
	}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a redirect would send the API key to another server
	c.http = &http.Client{Transport: t, CheckRedirect: noRedirect}
	return c, nil
}

// tlsConfig returns a configuration with the CA that the client trusts and with the client's certificate.
func tlsConfig(of policy.CrowdSec) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if of.CA != "" {
		text, err := os.ReadFile(of.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: %s has no certificate in PEM form", of.CA)
		}
	}
	if of.Cert != "" {
		text, err := safefile.Private().Read(of.Cert)
		if err != nil {
			return nil, fmt.Errorf("cert: %w", err)
		}
		pair, err := tls.X509KeyPair(text, text)
		if err != nil {
			return nil, wording.Hinted(fmt.Sprintf("cert: %s: %v", of.Cert, err), "the file has the certificate and then its private key, both in PEM form")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// ask requests all decisions, or the changes since the last request. It sends dedup=false. Otherwise the server would hide a decision if a longer one
// for the same address exists, and would not report the hidden decision when the longer one is deleted.
func (c *client) ask(ctx context.Context, all bool) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdsecAnswerTime)
	defer cancel()
	url := fmt.Sprintf("%s/v1/decisions/stream?startup=%t&scopes=ip,range&dedup=false", c.base, all)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{}, fmt.Errorf("crowdsec: %w", err)
	}
	if c.key != "" {
		r.Header.Set("X-Api-Key", c.key)
	}
	r.Header.Set("User-Agent", "floodwall/1")
	got, err := c.http.Do(r)
	if err != nil {
		return answer{}, fmt.Errorf("crowdsec: %s: %s", c.of.URL, remote.Why(err))
	}
	defer got.Body.Close()
	if err := c.refused(got); err != nil {
		return answer{}, err
	}
	body := &io.LimitedReader{R: got.Body, N: mostBytes}
	a, err := readAnswer(json.NewDecoder(body))
	switch {
	case body.N <= 0:
		return answer{}, fmt.Errorf("crowdsec: the answer of %s has more than %d MB: none of it is used", c.of.URL, mostBytes>>20)
	case err != nil:
		return answer{}, fmt.Errorf("crowdsec: the answer of %s is not whole: %s: none of it is used", c.of.URL, remote.Why(err))
	}
	return a, nil
}

// refused returns the error for an HTTP status.
func (c *client) refused(r *http.Response) error {
	status := remote.Status(r.StatusCode)
	problem, remedy := fmt.Sprintf("crowdsec: %s answers %s", c.of.URL, status), ""
	switch r.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized, http.StatusForbidden:
		problem = fmt.Sprintf("crowdsec: %s does not accept the key in %s (%s)", c.of.URL, c.of.KeyFile, status)
		remedy = "`cscli bouncers add floodwall` prints a key: write it into the file"
		if c.key == "" {
			problem = fmt.Sprintf("crowdsec: %s does not accept the certificate in %s (%s)", c.of.URL, c.of.Cert, status)
			remedy = "tls.bouncers_allowed_ou in CrowdSec's config.yaml names the organizational units (OU) of certificates that bouncers show"
		}
	case http.StatusNotFound:
		remedy = "name the address of the local API alone, as http://127.0.0.1:8080"
	}
	if r.StatusCode >= 300 && r.StatusCode < 400 {
		problem += ", which is not followed"
	}
	return wording.Hinted(problem, remedy)
}

// readAnswer decodes the decisions one by one, so that a huge answer takes no more memory than its decisions. A broken answer counts as empty.
func readAnswer(d *json.Decoder) (a answer, err error) {
	if err := expect(d, json.Delim('{')); err != nil {
		return a, err
	}
	known := false
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return a, err
		}
		switch name {
		case "new":
			a.fresh, err = readList(d)
			known = true
		case "deleted":
			a.deleted, err = readList(d)
			known = true
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return a, err
		}
	}
	if err := expect(d, json.Delim('}')); err != nil {
		return a, err
	}
	if !known {
		return a, errors.New("it has neither new nor deleted decisions")
	}
	return a, nil
}

// readList reads a list of decisions, or null.
func readList(d *json.Decoder) (list []decision, err error) {
	open, err := d.Token()
	if err != nil || open == nil {
		return nil, err
	}
	if open != json.Delim('[') {
		return nil, fmt.Errorf("there is %.40v in place of a list", open)
	}
	for d.More() {
		var one decision
		if err := d.Decode(&one); err != nil {
			return nil, err
		}
		one.cut()
		if list = append(list, one); len(list) > mostDecisions {
			return nil, fmt.Errorf("it has more than %d decisions", mostDecisions)
		}
	}
	return list, expect(d, json.Delim(']'))
}

// cut shortens the texts of a decision and frees the removed parts. A text that is too long is neither an address nor "ban".
func (d *decision) cut() {
	for _, text := range []*string{&d.Scenario, &d.Scope, &d.Value, &d.Type, &d.Duration} {
		if len(*text) > mostText {
			*text = strings.Clone(strings.ToValidUTF8((*text)[:mostText], ""))
		}
	}
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err == nil && got != want {
		err = fmt.Errorf("there is %.40v in place of %v", got, want)
	}
	return err
}
