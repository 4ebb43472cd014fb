/** A refusal of the operator API or the API of the pages, in its words. Pages bundle this file. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  /** 0: no response arrived at a page, and the change may have been applied. */
  readonly status: number;
  readonly code: string;
  /** Path of the field that is wrong, in the names of the API. Null if it is no field. */
  readonly param: string | null;

  constructor(status: number, code: string, message: string, param: string | null) {
    super(message);
    this.status = status;
    this.code = code;
    this.param = param;
  }
}
