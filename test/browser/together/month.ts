/**
 * Pages with a month of data and thousands of accounts. The tasks come last: they change accounts.
 */
import "../accounts.test.ts";
import "../charts.test.ts";
import "../widths.test.ts";
import "../tasks.test.ts";
