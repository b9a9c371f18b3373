/* Compares every constant in the library's table with the header of this MPI. */
#include "check.h"

#define SAME(name)                                                                                          \
  do {                                                                                                      \
    long long value = 0;                                                                                    \
    int code = bruckner_constant(#name, &value);                                                            \
    /* Handles of 4 bytes are compared as such. */                                                          \
    long long want = (long long)(intptr_t)(name);                                                           \
    if (sizeof(name) == 4) want = (int)want, value = (int)value;                                            \
    /* An extension may be left out, but not mistaken. */                                                   \
    if (code != 0 && strncmp(#name, "MPIX_", 5) == 0) break;                                                \
    EXPECT(code == 0 && value == want, "%s is %llx here, and %llx in the library", #name, want, value);     \
    cases++;                                                                                                \
  } while (0)

int main(int argc, char **argv) {
  begin(&argc, &argv);
  SAME(MPI_COMM_WORLD);
  SAME(MPI_COMM_SELF);
  SAME(MPI_COMM_NULL);
  SAME(MPI_GROUP_NULL);
  SAME(MPI_REQUEST_NULL);
  SAME(MPI_INFO_NULL);
  SAME(MPI_ERRORS_RETURN);
  SAME(MPI_DATATYPE_NULL);
  SAME(MPI_OP_NULL);
  SAME(MPI_IN_PLACE);
  SAME(MPI_STATUS_IGNORE);
  SAME(MPI_STATUSES_IGNORE);
  SAME(MPI_PROC_NULL);
  SAME(MPI_ANY_SOURCE);
  SAME(MPI_ANY_TAG);
  SAME(MPI_UNDEFINED);
  SAME(MPI_COMBINER_NAMED);
  SAME(MPI_COMBINER_DUP);
  SAME(MPI_COMBINER_CONTIGUOUS);
  SAME(MPI_COMBINER_VECTOR);
  SAME(MPI_COMBINER_HVECTOR);
  SAME(MPI_COMBINER_INDEXED);
  SAME(MPI_COMBINER_HINDEXED);
  SAME(MPI_COMBINER_INDEXED_BLOCK);
  SAME(MPI_COMBINER_HINDEXED_BLOCK);
  SAME(MPI_COMBINER_STRUCT);
  SAME(MPI_COMBINER_F90_REAL);
  SAME(MPI_COMBINER_F90_COMPLEX);
  SAME(MPI_COMBINER_F90_INTEGER);
  SAME(MPI_COMBINER_RESIZED);
  SAME(MPI_COMM_TYPE_SHARED);
  SAME(MPI_THREAD_SINGLE);
  SAME(MPI_THREAD_FUNNELED);
  SAME(MPI_THREAD_SERIALIZED);
  SAME(MPI_THREAD_MULTIPLE);
  SAME(MPI_TAG_UB);
  SAME(MPI_KEYVAL_INVALID);
  SAME(MPI_ERR_COUNT);
  SAME(MPI_ERR_OTHER);
  SAME(MPI_ERR_TRUNCATE);
  SAME(MPI_ERR_IN_STATUS);
  SAME(MPI_MAX);
  SAME(MPI_MIN);
  SAME(MPI_SUM);
  SAME(MPI_PROD);
  SAME(MPI_LAND);
  SAME(MPI_BAND);
  SAME(MPI_LOR);
  SAME(MPI_BOR);
  SAME(MPI_LXOR);
  SAME(MPI_BXOR);
  SAME(MPI_MINLOC);
  SAME(MPI_MAXLOC);
  SAME(MPI_BYTE);
  SAME(MPI_PACKED);
  SAME(MPI_CHAR);
  SAME(MPI_SIGNED_CHAR);
  SAME(MPI_UNSIGNED_CHAR);
  SAME(MPI_WCHAR);
  SAME(MPI_SHORT);
  SAME(MPI_UNSIGNED_SHORT);
  SAME(MPI_INT);
  SAME(MPI_UNSIGNED);
  SAME(MPI_LONG);
  SAME(MPI_UNSIGNED_LONG);
  SAME(MPI_LONG_LONG);
  SAME(MPI_UNSIGNED_LONG_LONG);
  SAME(MPI_FLOAT);
  SAME(MPI_DOUBLE);
  SAME(MPI_LONG_DOUBLE);
  SAME(MPI_C_BOOL);
  SAME(MPI_CXX_BOOL);
  SAME(MPI_C_FLOAT_COMPLEX);
  SAME(MPI_C_DOUBLE_COMPLEX);
  SAME(MPI_C_LONG_DOUBLE_COMPLEX);
  SAME(MPI_CXX_FLOAT_COMPLEX);
  SAME(MPI_CXX_DOUBLE_COMPLEX);
  SAME(MPI_INT8_T);
  SAME(MPI_INT16_T);
  SAME(MPI_INT32_T);
  SAME(MPI_INT64_T);
  SAME(MPI_UINT8_T);
  SAME(MPI_UINT16_T);
  SAME(MPI_UINT32_T);
  SAME(MPI_UINT64_T);
  SAME(MPI_AINT);
  SAME(MPI_OFFSET);
  SAME(MPI_COUNT);
#ifdef MPIX_C_FLOAT16
  SAME(MPIX_C_FLOAT16);
#endif
#ifdef MPIX_BFLOAT16
  SAME(MPIX_BFLOAT16);
#endif
  SAME(MPI_2INT);
  SAME(MPI_SHORT_INT);
  SAME(MPI_LONG_INT);
  SAME(MPI_FLOAT_INT);
  SAME(MPI_DOUBLE_INT);
  SAME(MPI_LONG_DOUBLE_INT);
  SAME(MPI_CHARACTER);
#ifdef MPI_LOGICAL
  SAME(MPI_LOGICAL);
#endif
  SAME(MPI_INTEGER);
  SAME(MPI_INTEGER1);
  SAME(MPI_INTEGER2);
  SAME(MPI_INTEGER4);
  SAME(MPI_INTEGER8);
  SAME(MPI_REAL);
  SAME(MPI_REAL4);
  SAME(MPI_REAL8);
  SAME(MPI_REAL16);
  SAME(MPI_DOUBLE_PRECISION);
  SAME(MPI_COMPLEX);
  SAME(MPI_COMPLEX8);
  SAME(MPI_COMPLEX16);
  SAME(MPI_DOUBLE_COMPLEX);
  SAME(MPI_2INTEGER);
  SAME(MPI_2REAL);
  SAME(MPI_2DOUBLE_PRECISION);
  return finish();
}
