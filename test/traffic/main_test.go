package traffic

import (
	"os"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

func TestMain(m *testing.M) { os.Exit(testutil.OwnMounts(m)) }
