// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/floodwall/floodwall/internal/daemon/attack"
)

// AttackList is the list of attacks that have a report.
type AttackList struct {
	Active  int              `json:"active"`  // how many attacks are active
	Attacks []attack.Summary `json:"attacks"` // the latest first

	Learning *attack.Learning `json:"learning,omitempty"` // what `detect` has learned of quiet times, and what `auto` still needs; nil without `detect` in the policy
}

func (c *Call) attacks(ctx context.Context) (AttackList, error) {
	return c.reports.get(ctx)
}

func (c *Call) attack(context.Context) (*attack.Report, error) {
	r, err := c.parts.Attacks.Store().Report(c.request.PathValue("id"))
	return r, noAttack(err)
}

// noAttack turns the error for an unknown attack into an error with an HTTP status.
func noAttack(err error) error {
	if errors.Is(err, attack.ErrUnknown) {
		return &Error{http.StatusNotFound, err.Error(), "GET /v1/attacks lists those that are known"}
	}
	return err
}

// attackPage answers with the report as an HTML page.
func (c *Call) attackPage() error {
	r, err := c.attack(c.request.Context())
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := r.WriteHTML(&text); err != nil {
		return err
	}
	c.out.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.out.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	return c.write(http.StatusOK, text.Bytes())
}

// attackCapture answers with packets of the attack as pcapng.
func (c *Call) attackCapture() error {
	f, err := c.parts.Attacks.Store().Capture(c.request.PathValue("id"))
	if err != nil {
		return noAttack(err)
	}
	text, err := readAll(f)
	if err != nil {
		return err
	}
	c.out.Header().Set("Content-Type", "application/x-pcapng")
	return c.write(http.StatusOK, text)
}

func readAll(f *os.File) ([]byte, error) {
	defer f.Close()
	return io.ReadAll(f)
}
