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

// Kinds of failures of requests, as in LoadSummary.Errors. There are others: a status, or what else went wrong.
const (
	FailedRefused     = "refused"      // nobody listens at the server's port
	FailedTimeout     = "timeout"      // in whatever phase
	FailedReset       = "reset"        // the server, or something on the way, has torn the connection
	FailedClosed      = "closed early" // in the middle of an answer, or before it
	FailedUnreachable = "unreachable"
	FailedCertificate = "certificate" // that the clients do not trust
	FailedNoTLS       = "no tls"      // the server answers something else
	FailedAnswer      = "not http"    // likewise
	FailedPorts       = "no free port"
	FailedDescriptors = "no free descriptor"
	FailedForbidden   = "not permitted" // a firewall on the clients' own host
)

// causes are the errors behind the kinds; the first that fits counts.
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

// statusError is an answer that is none: 400 and above.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// cause is the kind of an error: without addresses and ports, so that equal failures count together.
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
