// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// Kinds of failures of requests, as in LoadSummary.Errors. Further kinds are an HTTP status, and the text of any other error.
const (
	FailedRefused     = "refused"      // the server's port has no listener
	FailedTimeout     = "timeout"      // the request took too long, in any phase
	FailedReset       = "reset"        // the server, or a device on the path, has reset the connection
	FailedClosed      = "closed early" // the connection was closed before or during an answer
	FailedUnreachable = "unreachable"
	FailedCertificate = "certificate" // the clients do not trust the server's certificate
	FailedNoTLS       = "no tls"      // the server does not speak TLS
	FailedAnswer      = "not http"    // the server does not speak HTTP
	FailedPorts       = "no free port"
	FailedDescriptors = "no free descriptor"
	FailedForbidden   = "not permitted" // a firewall on the clients' own host
)

// causes maps errors to kinds of failures. The first entry that matches counts.
var causes = []struct {
	is   error
	kind string
}{
	{context.DeadlineExceeded, FailedTimeout}, {unix.ETIMEDOUT, FailedTimeout},
	{unix.ECONNREFUSED, FailedRefused},
	{unix.ECONNRESET, FailedReset}, {unix.EPIPE, FailedReset},
	{unix.EHOSTUNREACH, FailedUnreachable}, {unix.ENETUNREACH, FailedUnreachable},
	{unix.EADDRNOTAVAIL, FailedPorts}, {unix.EMFILE, FailedDescriptors}, {unix.ENFILE, FailedDescriptors},
	{unix.EPERM, FailedForbidden}, {unix.EACCES, FailedForbidden},
	{io.EOF, FailedClosed}, {io.ErrUnexpectedEOF, FailedClosed},
}

// statusError is the error for an answer with an HTTP status of 400 or above.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// cause returns the kind of a failure. The kind contains no addresses and ports, so that equal failures count together.
func cause(err error) string {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return FailedTimeout
	}
	for _, c := range causes {
		if errors.Is(err, c.is) {
			return c.kind
		}
	}
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var answer *answerError
	switch {
	case errors.As(err, &answer):
		return FailedAnswer
	case errors.As(err, &certificate):
		return FailedCertificate
	case errors.As(err, &record):
		return FailedNoTLS
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
